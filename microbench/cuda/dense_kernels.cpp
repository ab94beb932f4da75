#include <algorithm>
#include <cmath>
#include <cstring>

#include "microbench/cuda/gpu_kernels.h"
#include "moe/device/cuda/kernels.h"
#include "moe/tensor/fp8.h"
#include "moe/tensor/host_copy.h"

namespace moe::microbench {
namespace {

constexpr int64_t kTensorBytes = 128 << 20;  // larger than every L2 cache
constexpr int64_t kSeq = 2048;               // length of attention's scores, and the width of a row
constexpr double kEpsilon = 1e-5;

// The tensors that ops read and write, in rows of kSeq numbers: all rows on a GPU, or some of them on the host.
struct Operands {
  TensorView a, b, d;     // inputs
  TensorView p;           // input: softmaxes of causal scores
  TensorView gain;        // gain of norms
  TensorView out, other;  // outputs
  TensorView d_gain;      // output that sums over all rows

  TensorView scores(TensorView rows) const { return rows.part(0, {rows.size(0) / kSeq, kSeq, kSeq}); }
  NormInput norm(bool centred) const { return {a, gain, centred, kEpsilon}; }
};

void add_up(Math& math, const Operands& o, void* stream) {
  const Sum sum{{o.a.data(), o.b.data(), o.d.data()}, {o.out.data()}, o.out.elements(), o.out.dtype()};
  if (math.memory().kind() == DeviceKind::cuda)
    cuda::launch_sum(sum, static_cast<cudaStream_t>(stream));
  else
    execute_moves_on_host({.copies = {}, .sum = sum});
}

// An op of a layer's dense part: the least number of tensors that it must read and write, and its outputs. `from`: the
// initial value of `out` if the op works in place.
struct Op {
  std::string_view name;
  double tensors;
  void (*run)(Math& math, const Operands& o, void* stream);
  TensorView Operands::*from = nullptr;
  TensorView Operands::*also = nullptr;  // second output, beside `out`
};

// Only half of the causal scores is read, because the entries of row i after index i are 0.
const Op kOps[] = {
    {"copy of rows", 2, [](Math& m, const Operands& o, void*) { m.assign(o.a, o.out); }},
    {"gelu", 2, [](Math& m, const Operands& o, void*) { m.gelu(o.a, o.out); }},
    {"gelu backward", 3, [](Math& m, const Operands& o, void*) { m.gelu_backward(o.a, o.d, o.out); }},
    {"swiglu", 3, [](Math& m, const Operands& o, void*) { m.swiglu(o.a, o.b, o.out); }},
    {"swiglu backward", 5, [](Math& m, const Operands& o, void*) { m.swiglu_backward(o.a, o.b, o.d, o.out, o.other); },
     nullptr, &Operands::other},
    {"layernorm", 2, [](Math& m, const Operands& o, void*) { m.norm(o.norm(true), o.out); }},
    {"layernorm backward", 3, [](Math& m, const Operands& o, void*) { m.norm_backward(o.norm(true), o.out, o.d_gain); },
     &Operands::d, &Operands::d_gain},
    {"rmsnorm", 2, [](Math& m, const Operands& o, void*) { m.norm(o.norm(false), o.out); }},
    {"rmsnorm backward", 3, [](Math& m, const Operands& o, void*) { m.norm_backward(o.norm(false), o.out, o.d_gain); },
     &Operands::d, &Operands::d_gain},
    {"softmax", 1.5, [](Math& m, const Operands& o, void*) { m.attention_softmax(o.scores(o.out), 1, {}); },
     &Operands::a},
    {"softmax backward", 2,
     [](Math& m, const Operands& o, void*) { m.attention_softmax_backward(o.scores(o.p), o.scores(o.out), 1, {}); },
     &Operands::d},
    {"sum of 3", 4, add_up},
};

// The operands of the ops on a GPU, and the same ops on some rows on the host.
class Dense {
 public:
  Dense(DType dtype, Math& math, const Stopwatch& watch)
      : dtype_(dtype),
        math_(math),
        watch_(watch),
        rows_(kTensorBytes / (kSeq * bytes_of(dtype))),
        a_(make_tensor(true)),
        b_(make_tensor(true)),
        d_(make_tensor(true)),
        p_(make_tensor(true)),
        out_(make_tensor(false)),
        other_(make_tensor(false)),
        gain_(random_rows({kSeq}, dtype, math.memory())),
        d_gain_({kSeq}, dtype, math.memory()) {
    math.attention_softmax(operands().scores(p_), 1, {});
  }

  std::vector<measure::Kernel> kernels() {
    std::vector<measure::Kernel> all;
    for (const Op& op : kOps) all.push_back(kernel(op));
    for (const bool tiles : {false, true}) all.push_back(rounding(tiles));
    return all;
  }

 private:
  Tensor make_tensor(bool random) const {
    if (random) return random_rows({rows_, kSeq}, dtype_, math_.memory());
    return {{rows_, kSeq}, dtype_, math_.memory()};
  }
  Operands operands() const { return {a_, b_, d_, p_, gain_, out_, other_, d_gain_}; }
  std::string named(std::string_view what) const { return fmt::format("GPU {} {}", name_of(dtype_), what); }

  measure::Kernel kernel(const Op& op) {
    const double bytes = op.tensors * static_cast<double>(a_.view().bytes());
    return timed(
        op.name, bytes, [this, &op] { op.run(math_, operands(), watch_.stream()); }, [this, &op] { return wrong(op); });
  }

  // Returns the kernel that rounds to FP8: rows or, if `tiles`, weights by tiles together with their transpose.
  measure::Kernel rounding(bool tiles) {
    const auto numbers = static_cast<double>(a_.view().elements());
    const double bytes = numbers * (bytes_of(dtype_) + (tiles ? 2 : 1));
    return timed(
        tiles ? "weights to FP8" : "rows to FP8", bytes, [this, tiles] { round(tiles); },
        [this, tiles] { return wrong_rounding(tiles); });
  }

  measure::Kernel timed(std::string_view name, double bytes, std::function<void()> run,
                        std::function<measure::WrongElements()> check) {
    const auto whole = static_cast<double>(a_.view().bytes());
    measure::Kernel k{.name = named(name), .width = kSeq, .bytes = bytes};
    k.run = std::move(run);
    k.check = std::move(check);
    k.shape = {{"device", "cuda"}, {"dtype", std::string(name_of(dtype_))}, {"rows", rows_}};
    k.bound = {"GPU copy",
               {measure::Kernel{.name = named(kOps[0].name), .width = kSeq}.key()},
               [=](double seconds, double least) { return bytes / seconds * (least / (2 * whole)); }};
    watch_.time(k);
    return k;
  }

  // Writes the FP8 numbers into out_ and the scales into other_. If `tiles`, the transpose's follow in both.
  void round(bool tiles) const {
    auto* numbers = static_cast<uint8_t*>(out_.view().data());
    auto* scales = static_cast<float*>(other_.view().data());
    const Fp8Matrix turned{numbers + rows_ * kSeq, scales + fp8_scales(rows_, kSeq, true), kSeq, rows_, true};
    math_.round_fp8(matrix(a_), {numbers, scales, rows_, kSeq, tiles}, tiles ? &turned : nullptr);
  }

  // Compares the FP8 numbers of the first kSeq rows with the host's and, if `tiles`, those of the transpose, too.
  measure::WrongElements wrong_rounding(bool tiles) const {
    const HostCopy a(a_.view().part(0, {kSeq, kSeq}), math_.memory());
    std::vector<uint8_t> expected(kSeq * kSeq), found(static_cast<size_t>(2 * rows_ * kSeq));
    std::vector<float> scales(fp8_scales(kSeq, kSeq, false));
    cpu_math().round_fp8(matrix(a.view()), {expected.data(), scales.data(), kSeq, kSeq, tiles});
    math_.memory().to_host(out_.view().data(), found.data(), (tiles ? 2 : 1) * rows_ * kSeq);
    measure::WrongElements wrong;
    for (int64_t i = 0; i < kSeq; ++i)
      for (int64_t j = 0; j < kSeq; ++j) {
        const uint8_t one = expected[i * kSeq + j];
        const int64_t turned = tiles ? rows_ * kSeq + j * rows_ + i : i * kSeq + j;
        if (found[i * kSeq + j] == one && found[turned] == one) continue;
        if (wrong.count++ == 0) wrong.first = fmt::format("FP8 number ({}, {}): expected {:#x}", i, j, one);
      }
    return wrong;
  }

  // Runs the op again first, because an op that works in place has changed its input already.
  measure::WrongElements wrong(const Op& op) const {
    const Operands o = operands();
    MemorySpace& memory = math_.memory();
    if (op.from != nullptr) memory.copy((o.*op.from).data(), o.out.data(), o.out.bytes(), watch_.stream());
    op.run(math_, o, watch_.stream());
    if (op.also == &Operands::d_gain) return wrong_block(op, 0, rows_);
    const measure::WrongElements wrong = wrong_block(op, 0, kSeq);
    return wrong.count > 0 ? wrong : wrong_block(op, rows_ - kSeq, kSeq);
  }

  // Computes `rows` rows from `first` on the host and compares all outputs of these rows.
  measure::WrongElements wrong_block(const Op& op, int64_t first, int64_t rows) const {
    const auto copy = [&](const Tensor& t) {
      return HostCopy(t.view().part(first * kSeq, {rows, kSeq}), math_.memory());
    };
    const HostCopy a = copy(a_), b = copy(b_), d = copy(d_), p = copy(p_), out = copy(out_), other = copy(other_);
    const HostCopy gain(gain_, math_.memory()), d_gain(d_gain_, math_.memory());
    const Tensor expected({rows, kSeq}, DType::float32), also({rows, kSeq}, DType::float32),
        expected_gain({kSeq}, DType::float32);
    const Operands o{a.view(), b.view(), d.view(), p.view(), gain.view(), expected, also, expected_gain};
    if (op.from != nullptr) std::memcpy(o.out.data(), (o.*op.from).data(), static_cast<size_t>(o.out.bytes()));
    op.run(cpu_math(), o, nullptr);
    measure::WrongElements wrong;
    compare(op.name, out.view(), expected, kSeq, wrong);
    if (op.also == &Operands::other) compare(op.name, other.view(), also, kSeq, wrong);
    if (op.also == &Operands::d_gain) compare("gradient of gain", d_gain.view(), expected_gain, rows, wrong);
    return wrong;
  }

  // Compares sums of `terms` terms each, which are about as large as the row's largest element.
  void compare(std::string_view what, TensorView found, TensorView expected, int64_t terms,
               measure::WrongElements& wrong) const {
    const measure::SumCheck check(std::string(what), terms, dtype_, DType::float32);
    for (int64_t row = 0; row < expected.elements(); row += kSeq) {
      const float* of = expected.as<float>() + row;
      measure::ExactSum sum;
      for (int64_t j = 0; j < kSeq; ++j) sum.size = std::max(sum.size, std::abs(static_cast<double>(of[j])));
      for (int64_t j = 0; j < kSeq; ++j) {
        sum.value = of[j];
        check.compare(row + j, found.as<float>()[row + j], sum, wrong);
      }
    }
  }

  DType dtype_;
  Math& math_;
  const Stopwatch& watch_;
  int64_t rows_;
  Tensor a_, b_, d_, p_, out_, other_, gain_, d_gain_;
};

}  // namespace

void gpu_dense_kernels(DType dtype, LayerDevice& device, const Stopwatch& watch, const KernelGroup& group) {
  Dense dense(dtype, device.math(), watch);
  group(dense.kernels());
}

}  // namespace moe::microbench
