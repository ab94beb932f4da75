#include "moe/base/check.h"
#include "moe/base/numbers.h"
#include "moe/tensor/cpu/math.h"

namespace moe {

void convert(TensorView from, TensorView to) {
  require_equal(from.elements(), to.elements(), "elements to convert");
  with_number_type(from.dtype(), [&]<class From>(From) {
    with_number_type(to.dtype(), [&]<class To>(To) {
      const From* in = from.as<const From>();
      To* out = to.as<To>();
      parallel_for(from.elements(), int64_t{sizeof(From) + sizeof(To)}, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) round_to(widened(in[i]), out[i]);
      });
    });
  });
}

}  // namespace moe
