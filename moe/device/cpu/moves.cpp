#include "moe/device/moves.h"

#include <algorithm>
#include <cstring>

#include "moe/base/check.h"
#include "moe/device/sum.h"

namespace moe {
namespace {

template <class T>
void add_up(const Sum& sum) {
  const auto from = [&](int i) { return static_cast<const T*>(sum.from[i]); };
  sum_in_order<T>(static_cast<int>(sum.from.size()), from, 0, sum.elements,
                  [&](const T* piece, int64_t at, int64_t count) {
                    for (void* to : sum.to) std::copy_n(piece, count, static_cast<T*>(to) + at);
                  });
}

}  // namespace

void execute_moves_on_host(const Moves& moves) {
  for (const Copy& copy : moves.copies)
    // memcpy forbids null pointers even for no bytes.
    if (copy.bytes > 0 && copy.to != copy.from) std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
  if (moves.sum.elements == 0) return;
  with_number_type(moves.sum.dtype, [&](auto zero) { add_up<decltype(zero)>(moves.sum); });
}

}  // namespace moe
