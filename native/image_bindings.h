#pragma once

#include <nanobind/nanobind.h>

namespace dataflow {

// Adds the functions that look at and decode images.
void bind_images(nanobind::module_& module);

}  // namespace dataflow
