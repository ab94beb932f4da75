#pragma once
// Maps a run-time element type to a C++ type. Only this file determines the types that layers on the CPU support.
#include <memory>

#include "moe/base/check.h"
#include "moe/base/numbers.h"

namespace moe {

/// Calls `body(T{})` with the C++ type of `dtype`. Throws BadInput for 16-bit types, which need a GPU.
template <class Body>
decltype(auto) with_element(DType dtype, Body&& body) {
  if (dtype != accumulation_type(dtype))
    bad_input("dtype {} needs a GPU; on the CPU use float32 or float64", name_of(dtype));
  return with_accumulation_type(dtype, body);
}

/// Makes an Implementation<T>, where T is the C++ type of `dtype`.
template <class Interface, template <class> class Implementation, class Setup>
std::unique_ptr<Interface> make_for(DType dtype, const Setup& setup) {
  return with_element(dtype, [&](auto zero) -> std::unique_ptr<Interface> {
    return std::make_unique<Implementation<decltype(zero)>>(setup);
  });
}

}  // namespace moe
