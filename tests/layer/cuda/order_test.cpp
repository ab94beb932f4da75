// Tutel's order on a device against the CPU's: types, widths, choices, groups that are not here, chunks, dropped pairs,
// empty experts.
#include "moe/layer/orders/order.h"

#include <gtest/gtest.h>

#include "moe/layer/cuda/gate_kernels.h"
#include "tests/layer/cuda/device_values.h"
#include "tests/layer/cuda/test_device.h"

namespace moe {
namespace {

struct Shape {
  int groups;
  int64_t group_tokens, choices, experts, rows;
  bool mixes() const { return choices == experts * rows; }  // every row has every token
};

// Experts by chance, the last one of none; weights too.
struct Routed {
  Routed(const Shape& s, DType dtype, MemorySpace& memory)
      : device({.tokens = s.groups * s.group_tokens,
                .group_tokens = s.group_tokens,
                .choices = s.choices,
                .experts = s.experts,
                .rows = s.rows},
               accumulation_type(dtype), memory),
        reference(device, DType::float64) {
    Pair weights({device.tokens, s.choices}, accumulation_type(dtype), memory, 9);
    device.weight = std::move(weights.device);
    reference.weight = std::move(weights.reference);
    if (s.mixes())
      mix(s, dtype, memory);
    else
      choose(s);
  }
  void choose(const Shape& s) {
    for (int64_t t = 0; t < reference.tokens; ++t)
      for (int64_t c = 0; c < s.choices; ++c)
        reference.expert[t * s.choices + c] =
            static_cast<int32_t>((random_bits(3, 1, static_cast<uint64_t>(t)) + static_cast<uint64_t>(c)) %
                                 static_cast<uint64_t>(std::max<int64_t>(s.experts - 1, 1)));
    assign_rows(reference);
    device.expert = reference.expert;
    device.send();
    const auto& d = device.device;
    cuda::assign_rows(nullptr, {s.groups, s.group_tokens, s.choices, s.experts, s.rows, d.expert.data(), d.row.data(),
                                d.slot_of.data(), d.pair_of.data(), d.filled.data()});
  }
  void mix(const Shape& s, DType dtype, MemorySpace& memory) {
    Pair fills({device.tokens, s.choices}, accumulation_type(dtype), memory, 10);
    device.fill = std::move(fills.device);
    reference.fill = std::move(fills.reference);
    const auto& d = device.device;
    cuda::mix_tokens(nullptr,
                     {s.groups, s.group_tokens, s.choices, s.experts, s.rows, nullptr, d.row.data(), d.slot_of.data(),
                      d.pair_of.data(), d.filled.data()},
                     d.expert.data());
    finish_test_device();
    device.fetch();
    reference.expert = device.expert;
    reference.row = device.row;
    reference.filled = device.filled;
  }
  Routing device, reference;
};

struct RowGroups {
  int first = 0, count = 1;
};

RowLayout layout_of(const Shape& s, int64_t width, int degree, RowGroups groups, MemorySpace& memory) {
  RowLayout::Shape shape{s.rows, width, s.groups, s.experts, degree, false, {}};
  for (int group = groups.first; group < groups.first + groups.count; ++group)
    for (int64_t e = 0; e < s.experts; ++e) shape.cells.push_back({group, e, group});
  RowLayout layout(std::move(shape));
  layout.place_tables_on(memory, RowReader::order, s.rows);
  return layout;
}

constexpr Shape kRowShapes[] = {{1, 16, 1, 4, 4},   {1, 33, 2, 5, 9},  {2, 20, 3, 4, 7},
                                {3, 300, 2, 9, 60}, {1, 8, 4, 5, 8},   {2, 1, 1, 2, 1},
                                {1, 9, 12, 4, 3},   {2, 33, 10, 5, 2}, {1, 7, 31, 33, 5}};

class CudaOrderTest : public testing::TestWithParam<std::tuple<std::string, DType>> {
 protected:
  DType dtype() const { return std::get<1>(GetParam()); }
  Pair random(std::initializer_list<int64_t> shape, uint64_t stream) {
    return {shape, dtype(), math_->memory(), stream};
  }
  void compare(const Shape& s, const Routed& routed, int64_t width, int degree) {
    const int own = s.groups > 1 ? 1 : 0;  // the group that is here alone
    const RowLayout all = layout_of(s, width, degree, {0, s.groups}, math_->memory());
    const RowLayout here = layout_of(s, width, degree + 1, {own, 1}, math_->memory());
    const int64_t tokens = s.groups * s.group_tokens;
    Pair x = random({tokens, width}, 1), rows = random({all.elements()}, 2), mine = random({here.elements()}, 3);
    Pair y = random({tokens, width}, 4), d_rows = random({here.elements()}, 5);
    Pair d_w({tokens, s.choices}, accumulation_type(dtype()), math_->memory(), 6);
    order_->order(routed.device, x.device, {rows.device, all});
    cpu_->order(routed.reference, x.reference, {rows.reference, all});
    const double exact = s.mixes() ? 4 * tolerance_for(dtype()) : 0;
    const double masked =
        s.mixes() || std::get<0>(GetParam()) == "gshard" ? 4 : 1;  // weights are rounded, sums in parts
    expect_near(rows.device, rows.reference, exact, "rows");
    order_->order(routed.device, x.device, {mine.device, here});
    cpu_->order(routed.reference, x.reference, {mine.reference, here});
    expect_near(mine.device, mine.reference, exact, "rows of one group");
    order_->i_order(routed.device, {rows.device, all}, y.device);
    cpu_->i_order(routed.reference, {rows.reference, all}, y.reference);
    expect_near(y, "tokens", masked);
    order_->i_order_backward(routed.device, x.device, {rows.device, all}, {d_rows.device, here}, d_w.device);
    cpu_->i_order_backward(routed.reference, x.reference, {rows.reference, all}, {d_rows.reference, here},
                           d_w.reference);
    expect_near(d_rows, "gradients of rows", masked);
    expect_near(d_w.device, d_w.reference,
                2 * masked * (masked > 1 ? tolerance_for(dtype()) : tolerance_for(accumulation_type(dtype()))),
                "gradients of weights");
    Pair d_fill({tokens, s.choices}, accumulation_type(dtype()), math_->memory(), 8);
    order_->order_backward(routed.device, x.device, {rows.device, all}, y.device, d_fill.device);
    cpu_->order_backward(routed.reference, x.reference, {rows.reference, all}, y.reference, d_fill.reference);
    expect_near(y, "gradients of tokens", masked);
    if (s.mixes()) expect_near(d_fill.device, d_fill.reference, 8 * tolerance_for(dtype()), "gradients of fill");
  }

  std::unique_ptr<cuda::CudaMath> math_ = make_test_math();
  std::unique_ptr<Order> order_ = cuda::make_order(std::get<0>(GetParam()), *math_, dtype());
  std::unique_ptr<Order> cpu_ = make_order("tutel", DType::float64);
};

TEST_P(CudaOrderTest, EqualsTheCpus) {
  for (const Shape& s : kRowShapes) {
    const Routed routed(s, dtype(), math_->memory());
    for (const int64_t width : {1, 5, 16, 131, 264, 1031, 1032})
      for (const int degree : {1, 3}) {
        if (width > 264 && (s.mixes() || s.group_tokens > 40)) continue;  // of wide rows few will do
        SCOPED_TRACE(fmt::format("{} groups of {} tokens, {} choices of {} experts with {} rows of {}, {} chunks",
                                 s.groups, s.group_tokens, s.choices, s.experts, s.rows, width, degree));
        compare(s, routed, width, degree);
        if (HasFailure()) return;
      }
  }
}

TEST_P(CudaOrderTest, RefusesWhatItCanNot) {
  if (std::get<0>(GetParam()) != "tutel") return;  // masks take any number of choices, and no places
  const Shape too_many{1, 4, 33, 40, 4};
  Routed many(too_many, dtype(), math_->memory());
  const RowLayout layout = layout_of(too_many, 2, 1, {0, 1}, math_->memory());
  EXPECT_THROW(order_->i_order(many.device, {{}, layout}, {}), Unsupported);
  Routed few({1, 4, 1, 4, 4}, dtype(), math_->memory());
  EXPECT_THROW(order_->i_order(few.device, {{}, {}}, {}), WrongResult) << "a layout that was not put there";
}

INSTANTIATE_TEST_SUITE_P(All, CudaOrderTest,
                         testing::Combine(testing::Values("gshard", "tutel"), testing::ValuesIn(kDTypes)),
                         [](const auto& row) {
                           return std::get<0>(row.param) + "_" + std::string(name_of(std::get<1>(row.param)));
                         });

}  // namespace
}  // namespace moe
