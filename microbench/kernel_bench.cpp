#include "microbench/kernel_bench.h"

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "microbench/kernel_figure.h"
#include "moe/base/random.h"
#include "moe/base/table.h"
#include "moe/layer/cpu/math.h"
#include "moe/layer/experts/expert.h"
#include "moe/layer/gates/gate.h"
#include "moe/layer/orders/order.h"

namespace moe {
namespace {

constexpr int64_t kTokens = 2048, kMixedTokens = 512, kExperts = 8, kTopK = 2;
constexpr int64_t kModelDim = 1024, kHidden = 4096, kExpertRows = 512;
constexpr double kTurn = 0.03;  // seconds of samples a turn
constexpr double kSlow = 0.5;   // seconds: two turns are enough

struct Contender {
  std::string name;
  std::function<void()> run;
  double bytes = 0;
  double seconds = 1e300;  // the fastest so far
};

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Contenders take turns, so that all of them meet the same machine.
void race(std::vector<Contender>& contenders, int turns) {
  for (Contender& c : contenders) c.run();
  for (int turn = 0; turn < turns; ++turn)
    for (Contender& c : contenders) {
      if (turn > 1 && c.seconds > kSlow) continue;
      for (double spent = 0; spent < kTurn;) {
        const double seconds = seconds_of(c.run);
        c.seconds = std::min(c.seconds, seconds);
        spent += seconds;
      }
    }
}

Tensor random_rows(std::initializer_list<int64_t> shape) {
  Tensor t(shape, DType::float32);
  for (int64_t i = 0; i < t.view().elements(); ++i)
    t.view().as<float>()[i] = static_cast<float>(random_uniform(1, 2, static_cast<uint64_t>(i)) - 0.5);
  return t;
}

RankShape shape_of(std::string_view gate, int64_t tokens, int64_t width) {
  LayerShape layer{.batch = 1, .seq = tokens, .model_dim = width, .hidden = kHidden, .heads = 1};
  layer.experts = kExperts;
  layer.top_k = kTopK;
  layer.gate = gate;
  return rank_shape(complete(layer, {}, Rounding::ragged), 0);
}

// One group of tokens, routed by a gate, and everything that the four maps of an order read and write.
struct Routed {
  Routed(std::string_view gate, int64_t tokens, int64_t width)
      : rank(shape_of(gate, tokens, width)), routing(make_routing(rank)), hidden(random_rows({tokens, width})) {
    find_gate(gate).make({rank, {}})->forward(hidden, routing);
    RowLayout::Shape shape{rank.rows, width, 1, kExperts, 1, false, {}};
    for (int e = 0; e < kExperts; ++e) shape.cells.push_back({0, e, e});
    layout = RowLayout(std::move(shape));
    for (Tensor* t : {&rows, &d_rows}) *t = random_rows({layout.elements()});
    output = Tensor({tokens, width}, DType::float32);
    for (Tensor* t : {&d_weight, &d_fill}) *t = Tensor({tokens, routing.choices}, DType::float32);
  }

  // The four maps, with the bytes of the rows that each reads and writes.
  void add(std::string_view name, Order& order, std::vector<Contender>& to) {
    const double row = static_cast<double>(hidden.view().size(1) * bytes_of(DType::float32));
    const double own = static_cast<double>(routing.tokens) * row;
    const double all = static_cast<double>(layout.elements() * bytes_of(DType::float32));
    const double kept = row * static_cast<double>(std::accumulate(routing.filled.begin(), routing.filled.end(), 0L));
    const auto named = [&](std::string_view map) { return fmt::format("{} {}", name, map); };
    to.push_back({named("order"), [&] { order.order(routing, hidden, {rows, layout}); }, own + all});
    to.push_back({named("i-order"), [&] { order.i_order(routing, {rows, layout}, output); }, own + kept});
    to.push_back({named("i-order backward"),
                  [&] {
                    order.i_order_backward(routing, hidden, {rows, layout}, {d_rows, layout}, d_weight);
                  },
                  own + kept + all});
    to.push_back({named("order backward"),
                  [&] {
                    order.order_backward(routing, hidden, {d_rows, layout}, output, d_fill);
                  },
                  own + kept});
  }

  RankShape rank;
  Routing routing;
  RowLayout layout;
  Tensor hidden, rows, d_rows, output, d_weight, d_fill;
};

void bench_orders(std::string_view gate, int64_t tokens, int64_t width, int turns, std::vector<KernelFigure>& figures) {
  Routed routed(gate, tokens, width);
  std::vector<std::unique_ptr<Order>> orders;
  const auto bytes = static_cast<size_t>(routed.rows.view().bytes());
  std::vector<Contender> contenders{
      {"memcpy", [&] { std::memcpy(routed.d_rows.view().data(), routed.rows.view().data(), bytes); },
       2.0 * static_cast<double>(bytes)}};
  for (const std::string_view name : order_names())
    routed.add(name, *orders.emplace_back(make_order(name, DType::float32)), contenders);
  race(contenders, turns);
  const auto rate = [](const Contender& c) { return c.bytes / c.seconds; };
  const std::string rows = routed.routing.mixes() ? fmt::format(", rows of {}", gate) : "";
  for (const Contender& c : contenders)
    figures.push_back({c.name + rows, "memcpy", width, c.seconds, rate(c) * 1e-9, rate(c) / rate(contenders.front())});
}

// Of one expert, without what lies between its GEMMs; each as LibTorch's mm computes it.
struct Gemms {
  explicit Gemms(int inputs) : first(inputs) {}
  void forward() {
    for (int i = 0; i < first; ++i) gemm(matrix(x), matrix(w1), matrix(hidden));
    gemm(matrix(hidden), matrix(w2), matrix(y));
  }
  void backward() {
    gemm(matrix(y), transpose(matrix(w2)), matrix(hidden));
    gemm(transpose(matrix(hidden)), matrix(y), matrix(d_w2));
    for (int i = 0; i < first; ++i) {
      gemm(transpose(matrix(x)), matrix(hidden), matrix(d_w1));
      gemm(matrix(hidden), transpose(matrix(w1)), matrix(d_x));
    }
  }
  int first;  // before the activation
  Tensor x = random_rows({kExpertRows, kModelDim}), hidden = random_rows({kExpertRows, kHidden});
  Tensor w1 = random_rows({kModelDim, kHidden}), w2 = random_rows({kHidden, kModelDim}),
         y = random_rows({kExpertRows, kModelDim});
  Tensor d_x{{kExpertRows, kModelDim}, DType::float32}, d_w1{{kModelDim, kHidden}, DType::float32},
      d_w2{{kHidden, kModelDim}, DType::float32};
};

// Returns the seconds of forward and backward of kExpertRows rows.
double bench_expert(Ffn ffn, int turns, std::vector<KernelFigure>& figures) {
  LayerShape layer{.batch = 1, .seq = kExpertRows, .model_dim = kModelDim, .hidden = kHidden, .heads = 1, .experts = 1};
  layer.top_k = 1;
  layer.ffn = ffn;
  const RankShape rank = rank_shape(complete(layer, {}, Rounding::ragged), 0);
  const auto expert = make_expert(name_of(ffn), {rank, {}});
  expert->reserve(kExpertRows);
  Gemms gemms(gemms_of(ffn) - 1);
  const std::array rows{Rows{0, kExpertRows}};
  const Tensor x = random_rows({kExpertRows, kModelDim}), y = random_rows({kExpertRows, kModelDim});
  const Tensor d_x({kExpertRows, kModelDim}, DType::float32);
  std::vector<Contender> contenders{{"forward", [&] { expert->forward(x, rows, y); }},
                                    {"forward GEMMs", [&] { gemms.forward(); }},
                                    {"backward", [&] { expert->backward(x, rows, y, d_x, true); }},
                                    {"backward GEMMs", [&] { gemms.backward(); }}};
  race(contenders, turns);
  for (size_t i = 0; i < contenders.size(); i += 2)
    figures.push_back({fmt::format("expert {} {}", name_of(ffn), contenders[i].name), "its GEMMs by at::mm", kModelDim,
                       contenders[i].seconds, 0, contenders[i + 1].seconds / contenders[i].seconds});
  return contenders[0].seconds + contenders[2].seconds;
}

void bench_gate(std::string_view name, double expert_row_s, int turns, std::vector<KernelFigure>& figures) {
  const RankShape rank = shape_of(name, kTokens, kModelDim);
  Routing routing = make_routing(rank);
  const auto gate = find_gate(name).make({rank, {}});
  const Tensor hidden = random_rows({kTokens, kModelDim}), d_hidden({kTokens, kModelDim}, DType::float32);
  const Tensor d = random_rows({kTokens, routing.choices}), d_fill = random_rows({kTokens, routing.choices});
  std::vector<Contender> contenders{{"", [&] {
                                       gate->forward(hidden, routing);
                                       gate->backward({hidden, routing, d, d_fill, d_hidden, 1});
                                     }}};
  race(contenders, turns);
  const double seconds = contenders.front().seconds;
  figures.push_back({fmt::format("gate {}", name), "the experts' time", kModelDim, seconds, 0,
                     seconds / (expert_row_s * static_cast<double>(rank.rows * kExperts))});
}

std::vector<KernelFigure> measure(int turns) {
  std::vector<KernelFigure> figures;
  for (const int64_t width : {1024, 2048, 4096}) bench_orders("gshard", kTokens, width, turns, figures);
  for (const std::string_view gate : gate_names())
    if (find_gate(gate).choices == Choices::rows) bench_orders(gate, kMixedTokens, kModelDim, turns, figures);
  const double seconds = bench_expert(Ffn::gpt, turns, figures);
  bench_expert(Ffn::mixtral, turns, figures);
  for (const std::string_view gate : gate_names())
    bench_gate(gate, seconds / static_cast<double>(kExpertRows), turns, figures);
  for (KernelFigure& figure : measure_gpu_kernels(turns)) figures.push_back(std::move(figure));
  return figures;
}

}  // namespace

int run_kernel_bench(const KernelBenchOptions& options) {
  const std::vector<KernelFigure> figures = measure(options.repetitions);
  auto json = nlohmann::ordered_json::array();
  Table table({"kernel", "M", "ms", "GB/s", "share", "of"});
  for (const KernelFigure& f : figures) {
    json.push_back({{"kernel", f.kernel},
                    {"model_dim", f.width},
                    {"seconds", f.seconds},
                    {"gb_per_s", f.gb_per_s},
                    {"share", f.share},
                    {"of", f.of}});
    table.add({f.kernel, fmt::format("{}", f.width), fmt::format("{:.3f}", f.seconds * 1e3),
               f.gb_per_s > 0 ? fmt::format("{:.2f}", f.gb_per_s) : "-", fmt::format("{:.1f} %", 100 * f.share), f.of});
  }
  if (options.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"tokens", kTokens},
                                              {"experts", kExperts},
                                              {"top_k", kTopK},
                                              {"hidden", kHidden},
                                              {"expert_rows", kExpertRows},
                                              {"dtype", "float32"},
                                              {"kernels", json}}
                           .dump(1));
  else
    fmt::print("float32, one thread, fastest of {}; {} tokens, {} experts of H {}, top {}, {} rows an expert alone\n{}",
               options.repetitions, kTokens, kExperts, kHidden, kTopK, kExpertRows, table.text());
  return 0;
}

}  // namespace moe
