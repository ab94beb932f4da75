#include <cstring>
#include <memory>
#include <numeric>

#include "microbench/kernels.h"
#include "moe/layer/gates/gate.h"
#include "moe/layer/orders/order.h"

namespace moe::microbench {
namespace {

// One group of tokens that a gate routed, and the operands of the four maps of an order.
struct Routed {
  Routed(const KernelSizes& sizes, std::string_view gate, int64_t tokens, int64_t width)
      : rank(routed_shape(sizes, gate, tokens, width)),
        routing(make_routing(rank)),
        layout(layout_of(rank)),
        hidden(random_rows({tokens, width})),
        rows(random_rows({layout.elements()})),
        d_rows(random_rows({layout.elements()})),
        output({tokens, width}, DType::float32),
        d_weight({tokens, routing.choices}, DType::float32),
        d_fill({tokens, routing.choices}, DType::float32) {
    find_gate(gate).make({rank, {}})->forward(hidden, routing);
  }

  // Appends the kernels of the four maps to `to`, with the bytes of the rows that each map reads and writes.
  void add(std::string_view name, Order& order, std::vector<measure::Kernel>& to) {
    const double row = static_cast<double>(hidden.view().size(1) * bytes_of(DType::float32));
    const double own = static_cast<double>(routing.tokens) * row;
    const double all = static_cast<double>(rows.view().bytes());
    const double kept = row * static_cast<double>(std::accumulate(routing.filled.begin(), routing.filled.end(), 0L));
    const auto map = [&](std::string_view what, double bytes, auto run, auto check, std::vector<TensorView> written) {
      measure::Kernel kernel = make_kernel(fmt::format("{} {}", name, what), bytes);
      kernel.run = run;
      kernel.check = check;
      kernel.written = std::move(written);
      to.push_back(std::move(kernel));
    };
    map(
        "order", own + all, [&] { order.order(routing, hidden, forward_rows()); },
        [&] {
          return wrong_rows({routing, forward_rows()}, fill(), hidden);
        },
        {rows});
    map(
        "i-order", own + kept, [&] { order.i_order(routing, forward_rows(), output); },
        [&] {
          return wrong_tokens({routing, forward_rows()}, weight(), output);
        },
        {output});
    map(
        "i-order backward", own + kept + all,
        [&] { order.i_order_backward(routing, hidden, forward_rows(), backward_rows(), d_weight); },
        [&] {
          const measure::WrongElements wrong = wrong_rows({routing, backward_rows()}, weight(), hidden);
          return wrong.count > 0 ? wrong : wrong_dots({routing, forward_rows()}, hidden, d_weight);
        },
        {d_rows, d_weight});
    map(
        "order backward", own + kept, [&] { order.order_backward(routing, hidden, backward_rows(), output, d_fill); },
        [&] {
          const measure::WrongElements wrong = wrong_tokens({routing, backward_rows()}, fill(), output);
          return wrong.count > 0 || !routing.mixes() ? wrong : wrong_dots({routing, backward_rows()}, hidden, d_fill);
        },
        routing.mixes() ? std::vector<TensorView>{output, d_fill} : std::vector<TensorView>{output});
  }

  measure::Kernel copy() {
    const int64_t bytes = rows.view().bytes();
    measure::Kernel kernel = make_kernel("memcpy", 2.0 * static_cast<double>(bytes));
    kernel.run = [this, bytes] { std::memcpy(d_rows.view().data(), rows.view().data(), static_cast<size_t>(bytes)); };
    kernel.check = [this, bytes] {
      const int same = std::memcmp(d_rows.view().data(), rows.view().data(), static_cast<size_t>(bytes));
      return same == 0 ? measure::WrongElements{} : measure::WrongElements{1, "the copy differs"};
    };
    kernel.written = {d_rows};
    return kernel;
  }

  RankShape rank;
  Routing routing;
  RowLayout layout;
  Tensor hidden, rows, d_rows, output, d_weight, d_fill;

 private:
  RowsView forward_rows() const { return {rows, layout}; }
  RowsView backward_rows() const { return {d_rows, layout}; }
  const float* weight() const { return routing.weight.as<float>(); }
  const float* fill() const { return routing.mixes() ? routing.fill.as<float>() : nullptr; }
  measure::Kernel make_kernel(const std::string& name, double bytes) const {
    const std::string of = routing.mixes() ? fmt::format(", rows of {}", rank.shape.layer.gate) : "";
    const double copied = 2.0 * static_cast<double>(rows.view().bytes());
    measure::Kernel kernel{.name = name + of, .width = hidden.view().size(1), .bytes = bytes};
    kernel.shape = {{"device", "cpu"},
                    {"dtype", "float32"},
                    {"tokens", routing.tokens},
                    {"experts", routing.experts},
                    {"rows", routing.rows}};
    kernel.bound = {"memcpy", {}, [=](double seconds, double least) { return bytes / seconds * (least / copied); }};
    kernel.bound.kernels = {measure::Kernel{.name = "memcpy" + of, .width = kernel.width}.key()};
    return kernel;
  }
};

void bench_orders(Routed& routed, const KernelGroup& group) {
  std::vector<std::unique_ptr<Order>> orders;
  std::vector<measure::Kernel> kernels{routed.copy()};
  for (const std::string_view name : order_names())
    routed.add(name, *orders.emplace_back(make_order(name, DType::float32)), kernels);
  group(kernels);
}

}  // namespace

void order_kernels(const KernelSizes& sizes, const KernelGroup& group) {
  for (const int64_t width : sizes.order_widths) {
    Routed routed(sizes, "gshard", sizes.tokens, width);
    bench_orders(routed, group);
  }
  for (const GatePart& gate : kGateParts) {
    if (gate.choices != Choices::rows) continue;
    Routed routed(sizes, gate.name, sizes.mixed_tokens, sizes.model_dim);
    bench_orders(routed, group);
  }
}

}  // namespace moe::microbench
