/* Decodes the part of a JPEG file that a window needs with libjpeg-turbo, and nothing else: what a decoder costs at least. */
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

struct errors {
    struct jpeg_error_mgr base;
    jmp_buf back;
};

static void fail(j_common_ptr decoder) { longjmp(((struct errors *)decoder->err)->back, 1); }

/* `pixels` takes height rows of RGB; returns the pixels in a row and sets where in it the window begins, or returns -1. */
int decode(const unsigned char *file, unsigned long size, int top, int left, int height, int width, unsigned char *pixels,
           int *start) {
    struct jpeg_decompress_struct decoder;
    struct errors errors;
    decoder.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = fail;
    if (setjmp(errors.back)) {
        jpeg_destroy_decompress(&decoder);
        return -1;
    }
    jpeg_create_decompress(&decoder);
    jpeg_mem_src(&decoder, file, size);
    jpeg_read_header(&decoder, TRUE);
    decoder.out_color_space = JCS_RGB;
    jpeg_start_decompress(&decoder);
    JDIMENSION offset = left, columns = width;
    jpeg_crop_scanline(&decoder, &offset, &columns);
    if (top > 0) jpeg_skip_scanlines(&decoder, top);
    while (decoder.output_scanline < (JDIMENSION)(top + height)) {
        JSAMPROW row = pixels + (unsigned long)(decoder.output_scanline - top) * decoder.output_width * 3;
        jpeg_read_scanlines(&decoder, &row, 1);
    }
    *start = left - (int)offset;
    int stride = decoder.output_width;
    jpeg_destroy_decompress(&decoder);
    return stride;
}
