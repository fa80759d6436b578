#pragma once

// Loops worth compiling twice: the wider vectors are taken at run time where the processor has them, so that one wheel
// serves all. Only GCC on glibc resolves such clones; elsewhere the baseline is used.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12 && \
    !defined(DATAFLOW_NO_DISPATCH)
#define DATAFLOW_DISPATCH [[gnu::target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")]]
#else
#define DATAFLOW_DISPATCH
#endif
