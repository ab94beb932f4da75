#include <algorithm>
#include <cmath>

#include "microbench/cuda/gpu_kernels.h"
#include "moe/layer/cuda/mixing_gate.h"
#include "moe/layer/gates/gate_parts.h"
#include "moe/tensor/element.h"
#include "moe/tensor/host_copy.h"

namespace moe::microbench {
namespace {

constexpr DType kDType = DType::float32;       // type of gates, also in 16-bit layers
constexpr double kAuxLoss = 10, kZLoss = 0.1;  // so large that both affect the gradients

// Returns the shape of the CPU's gate. Its softmax covers all logits and it has both losses, because these kernels move
// the most bytes.
RankShape shape_of(const KernelSizes& sizes) {
  RankShape rank = routed_shape(sizes, "switch", sizes.tokens, sizes.model_dim);
  LayerShape& layer = rank.shape.layer;
  layer.capacity_factor = 1;  // drops some pairs
  layer.aux_loss = kAuxLoss;
  layer.z_loss = kZLoss;
  layer.dtype = DType::float64;
  return rank;
}

template <class T>
std::vector<T> on_host(const Array<T>& there) {
  std::vector<T> here(there.size());
  there.to_host(here.data());
  return here;
}

template <class T>
void compare_whole(std::string_view what, const std::vector<T>& found, const std::vector<T>& expected,
                   measure::WrongElements& wrong) {
  for (size_t i = 0; i < expected.size(); ++i)
    if (found[i] != expected[i] && wrong.count++ == 0)
      wrong.first = fmt::format("{}, element {}: found {}, expected {}", what, i, found[i], expected[i]);
}

// The logits of one group of tokens, the results of a gate's kernels, and those of the CPU's functions. Kernels read
// the experts that the CPU chose, so that one kernel's wrong choice does not make the others' results wrong.
class Gates {
 public:
  Gates(const KernelSizes& sizes, LayerDevice& device, const Stopwatch& watch)
      : memory_(device.math().memory()),
        watch_(watch),
        rank_(shape_of(sizes)),
        losses_(rank_),
        exact_(rank_),
        expected_(make_routing(rank_)),
        routing_(expected_, kDType, memory_),
        chosen_(memory_, routing_.pairs()),
        logits_(random_rows({sizes.tokens, sizes.experts}, kDType, memory_)),
        probabilities_({sizes.tokens, sizes.experts}, kDType, memory_),
        d_logits_({sizes.tokens, sizes.experts}, kDType, memory_),
        log_sums_({sizes.tokens}, kDType, memory_),
        d_weight_(random_rows({sizes.tokens, sizes.top_k}, kDType, memory_)),
        copied_(random_rows({2 * logits_.view().elements()}, kDType, memory_)),  // as many numbers as any kernel moves
        copy_({copied_.view().elements()}, kDType, memory_),
        statistics_(losses_.make_statistics(memory_)) {
    const std::vector<double> logits = numbers(logits_);
    choose_top_k(logits.data(), sizes.experts, expected_);
    exact_.forward(logits.data(), sizes.experts);
    exact_.weigh(expected_);
    exact_.count(expected_);
    routing_.expert = expected_.expert;
    routing_.send();
    find_scores(), weigh(), count();  // the inputs of other kernels
  }

  std::vector<measure::Kernel> kernels() const {
    const auto bytes = [](const Tensor& t) { return static_cast<double>(t.view().bytes()); };
    const double all = bytes(logits_), tokens = bytes(log_sums_), pairs = bytes(d_weight_), sums = bytes(statistics_);
    const auto slots = static_cast<double>(sizeof(int32_t)) * static_cast<double>(routing_.device.pair_of.size());
    const auto counts = static_cast<double>(sizeof(int64_t)) * static_cast<double>(routing_.experts);
    std::vector<measure::Kernel> kernels;
    const auto add = [&](std::string_view what, double moved, auto run, auto check) {
      kernels.push_back(copy(what, moved));
      kernels.push_back(kernel(what, moved, run, check));
    };
    add(
        "choose top-k", all + pairs, [this] { choose(); }, [this] { return wrong_choices(); });
    add(
        "assign rows", 3 * pairs + slots + counts, [this] { assign(); }, [this] { return wrong_assignment(); });
    add(
        "softmax scores", 2 * all + tokens, [this] { find_scores(); }, [this] { return wrong_scores(); });
    add(
        "weigh", 3 * pairs, [this] { weigh(); },
        [this] { return wrong_numbers("weights", routing_.weight, numbers(expected_.weight)); });
    add(
        "count statistics", all + 2 * tokens + sums, [this] { count(); },
        [this] { return wrong_numbers("statistics", statistics_, numbers(exact_.statistics())); });
    add(
        "gate backward", 2 * all + 3 * pairs + tokens + counts, [this] { run_gate_backward(); },
        [this] { return wrong_gradients(); });
    return kernels;
  }

 private:
  static void* data(const Tensor& t) { return t.view().data(); }

  measure::Kernel single_kernel(std::string_view what, double bytes, std::function<void()> run,
                                std::function<measure::WrongElements()> check) const {
    measure::Kernel k{
        .name = fmt::format("GPU {} {}", name_of(kDType), what), .width = routing_.experts, .bytes = bytes};
    k.shape = {{"device", "cuda"},
               {"dtype", std::string(name_of(kDType))},
               {"tokens", routing_.tokens},
               {"experts", routing_.experts},
               {"top_k", routing_.choices}};
    k.run = std::move(run);
    k.check = std::move(check);
    watch_.time(k);
    return k;
  }
  // Returns a kernel that copies `bytes` bytes inside the GPU's memory, as the bound of a gate's kernel. Most kernels
  // move too few bytes to reach the memory's full speed.
  measure::Kernel copy(std::string_view what, double bytes) const {
    const TensorView from = copied_.view().part(0, {static_cast<int64_t>(bytes) / 2 / bytes_of(kDType)});
    const TensorView to = from.moved_to(data(copy_), from.device(), from.dtype());
    return single_kernel(
        fmt::format("{} copy", what), bytes,
        [=, this] { memory_.copy(from.data(), to.data(), from.bytes(), watch_.stream()); },
        [=, this] { return wrong_numbers("copy", to, numbers(from)); });
  }
  measure::Kernel kernel(std::string_view what, double bytes, std::function<void()> run,
                         std::function<measure::WrongElements()> check) const {
    measure::Kernel k = single_kernel(what, bytes, std::move(run), std::move(check));
    k.bound = {"GPU copy", {copy(what, bytes).key()}, [](double seconds, double of) { return of / seconds; }};
    return k;
  }

  cuda::Work work() const { return {watch_.stream(), kDType}; }
  cuda::Logits rows_of(const Tensor& t) const { return {data(t), routing_.tokens, routing_.experts, routing_.experts}; }
  const int32_t* expert() const { return routing_.device.expert.data(); }

  void choose() const { cuda::choose_top_k(work(), rows_of(logits_), routing_.choices, chosen_.data()); }
  void assign() const { cuda::assign_rows(watch_.stream(), cuda::assignment_of(routing_)); }
  void find_scores() const { cuda::softmax_scores(work(), rows_of(logits_), data(probabilities_), data(log_sums_)); }
  void weigh() const {
    cuda::weigh(work(), rows_of(logits_),
                {Scoring::all, routing_.choices, expert(), data(probabilities_), data(routing_.weight)});
  }
  void count() const {
    cuda::count_statistics(work(), {routing_.tokens, routing_.experts, routing_.choices, expert(), data(probabilities_),
                                    data(log_sums_), statistics_.as<double>()});
  }
  void run_gate_backward() const {
    const cuda::GateGradient gradient{.d_weight = data(d_weight_),
                                      .weight = data(routing_.weight),
                                      .probabilities = data(probabilities_),
                                      .log_sums = data(log_sums_),
                                      .sums = statistics_.as<double>(),
                                      .balance = losses_.balance_slope(1),
                                      .z = losses_.z_slope(1),
                                      .scoring = Scoring::all,
                                      .choices = routing_.choices,
                                      .by_expert = false,
                                      .expert = expert()};
    cuda::gate_backward(work(), gradient, rows_of(d_logits_));
  }

  std::vector<double> numbers(TensorView t) const {
    const HostCopy here(t, memory_);
    return with_element(here.view().dtype(), [&](auto zero) {
      const auto* first = here.view().as<decltype(zero)>();
      return std::vector<double>(first, first + here.view().elements());
    });
  }

  // Compares rows with one number for each expert. A number is a sum of as many terms as experts exist, each about
  // as large as the row's largest number.
  measure::WrongElements wrong_numbers(std::string_view what, TensorView there,
                                       std::span<const double> expected) const {
    const std::vector<double> found = numbers(there);
    const measure::SumCheck check(std::string(what), routing_.experts, kDType, kDType);
    const auto width = static_cast<size_t>(routing_.experts);
    measure::WrongElements wrong;
    for (size_t row = 0; row < expected.size(); row += width) {
      const std::span<const double> here = expected.subspan(row, std::min(width, expected.size() - row));
      measure::ExactSum sum;
      for (const double number : here) sum.size = std::max(sum.size, std::abs(number));
      for (size_t i = row; i < row + here.size(); ++i) {
        sum.value = expected[i];
        check.compare(static_cast<int64_t>(i), found[i], sum, wrong);
      }
    }
    return wrong;
  }

  measure::WrongElements wrong_choices() const {
    measure::WrongElements wrong;
    compare_whole("experts of pairs", on_host(chosen_), expected_.expert, wrong);
    return wrong;
  }
  measure::WrongElements wrong_assignment() const {
    const Routing::OnDevice& there = routing_.device;
    std::vector<int32_t> slot_of(expected_.row.size(), Routing::kDropped);
    std::vector<int32_t> pair_of(there.pair_of.size(), -1);
    for (size_t pair = 0; pair < slot_of.size(); ++pair) {
      if (expected_.row[pair] == Routing::kDropped) continue;
      slot_of[pair] = expected_.expert[pair] * static_cast<int32_t>(expected_.slots()) + expected_.row[pair];
      pair_of[slot_of[pair]] = static_cast<int32_t>(pair);
    }
    measure::WrongElements wrong;
    compare_whole("rows of pairs", on_host(there.row), expected_.row, wrong);
    compare_whole("slots of pairs", on_host(there.slot_of), slot_of, wrong);
    compare_whole("pairs of slots", on_host(there.pair_of), pair_of, wrong);
    compare_whole("rows filled", on_host(there.filled), expected_.filled, wrong);
    return wrong;
  }
  measure::WrongElements wrong_scores() const {
    const std::span<const double> p(exact_.probabilities(0), static_cast<size_t>(logits_.view().elements()));
    const measure::WrongElements wrong = wrong_numbers("probabilities", probabilities_, p);
    if (wrong.count > 0) return wrong;
    const std::vector<double> logits = numbers(logits_);
    std::vector<double> log_sums;  // p = exp(logit - log sum)
    for (size_t i = 0; i < logits.size(); i += static_cast<size_t>(routing_.experts))
      log_sums.push_back(logits[i] - std::log(p[i]));
    return wrong_numbers("logarithms of sums", log_sums_, log_sums);
  }
  measure::WrongElements wrong_gradients() const {
    const std::vector<double> d_weight = numbers(d_weight_);
    std::vector<double> expected(d_logits_.view().elements());
    exact_.backward(expected_, d_weight.data(), expected.data(), routing_.experts);
    exact_.add_losses(1, expected.data(), routing_.experts);
    return wrong_numbers("gradients of logits", d_logits_, expected);
  }

  MemorySpace& memory_;
  const Stopwatch& watch_;
  RankShape rank_;
  AuxiliaryLosses losses_;
  SoftmaxScores<double> exact_;
  Routing expected_, routing_;  // routing of the CPU, and of the GPU
  Array<int32_t> chosen_;
  Tensor logits_, probabilities_, d_logits_, log_sums_, d_weight_, copied_, copy_, statistics_;
};

}  // namespace

void gpu_gate_kernels(const KernelSizes& sizes, LayerDevice& device, const Stopwatch& watch, const KernelGroup& group) {
  const Gates gates(sizes, device, watch);
  group(gates.kernels());
}

}  // namespace moe::microbench
