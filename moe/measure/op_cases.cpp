#include "moe/measure/op_cases.h"

#include <algorithm>
#include <cmath>

#include "moe/base/check.h"
#include "moe/base/units.h"

namespace moe {
namespace {

constexpr int64_t kCollectiveStep = int64_t{1} << 18, kGemmStep = int64_t{1} << 19;  // float elements
constexpr int kCollectiveSizes = 24, kGemmSizes = 12;
constexpr int64_t kProxyShare = 256;  // nominal elements for each real one
constexpr int64_t kProxyGemmDim = 48;
constexpr double kShortestSample_s = 2e-3;
constexpr int kHostShare = 16;
constexpr double kFloatBytes = 4;

bool is_timed(const CommRow& row) {
  return row.algorithm == "direct" &&
         (row.op == "alltoall" || row.op == "allgather" || row.op == "reducescatter" || row.op == "allreduce");
}

double gemm_flops(int64_t dim) { return kFlopsPerMac * std::pow(static_cast<double>(dim), 3); }
int64_t gemm_dim(int64_t elements) { return std::llround(std::sqrt(static_cast<double>(elements))); }

OpCase collective(std::string op, Network network, int ranks, int64_t elements) {
  OpCase c;
  c.op = std::move(op);
  c.network = network;
  c.ranks = ranks;
  c.bytes = static_cast<double>(elements) * kFloatBytes;
  c.real_elements = elements;
  return c;
}

OpCase gemm(int64_t dim) {
  OpCase c;
  c.op = "gemm";
  c.flops = gemm_flops(dim);
  c.real_dim = dim;
  return c;
}

// Attention of testbed shapes: B {1, 2, 4} x M {1024, 2048, 4096} at the row's sequence length.
std::vector<OpCase> attention_cases(const ModuleRow& row, const Profile& cluster) {
  std::vector<OpCase> cases;
  for (const int64_t batch : {1, 2, 4})
    for (const int64_t dim : {1024, 2048, 4096}) {
      Case shape;
      shape.layer.batch = batch;
      shape.layer.seq = row.seq.value_or(1024);
      shape.layer.model_dim = dim;
      shape.layer.heads = shape.layer.kv_heads = 16;
      shape.parallel.mp = cluster.ranks_per_node;
      OpCase& c = cases.emplace_back();
      c.op = "module";
      c.module = row.name;
      c.phase = row.phase;
      c.seq = row.seq;
      c.flops = attention_flops(shape) * (row.phase == Phase::backward ? 2 : 1);
      c.real_dim = kProxyGemmDim;
      c.modelled_s = row.alpha_s + c.flops * row.beta_s_per_flop;
    }
  return cases;
}

void dilate(std::vector<OpCase>& cases) {
  for (OpCase& c : cases) {
    double shortest = c.modelled_s;
    for (const OpCase& other : cases)
      if (other.series() == c.series()) shortest = std::min(shortest, other.modelled_s);
    c.dilation = std::max(1.0, kShortestSample_s / shortest);
  }
}

}  // namespace

std::string OpCase::series() const {
  if (op == "gemm") return fmt::format("gemm {}", name_of(dtype));
  if (op == "module") return fmt::format("{} {}{}", module, name_of(phase), seq ? fmt::format(" {}", *seq) : "");
  return fmt::format("{} {} {}", op, name_of(network), ranks);
}

std::string OpCase::key() const {
  std::string text = fmt::format("{} {:.0f}", series(), bytes > 0 ? bytes : flops);
  std::replace(text.begin(), text.end(), ' ', '/');
  return text;
}

Fields OpCase::parameters(const Profile& cluster) const {
  Fields fields{{"cluster", cluster.name},
                {"nodes", int64_t{cluster.nodes}},
                {"ranks_per_node", int64_t{cluster.ranks_per_node}},
                {"op", op}};
  if (op == "gemm") {
    fields.set("dtype", std::string(name_of(dtype)));
    fields.set("flops", flops);
    fields.set("gemms", int64_t{1});
  } else if (op == "module") {
    fields.set("name", module);
    fields.set("phase", std::string(name_of(phase)));
    fields.set("flops", flops);
    if (seq) fields.set("seq", *seq);
  } else {
    fields.set("network", std::string(name_of(network)));
    fields.set("ranks", int64_t{ranks});
    fields.set("bytes", bytes);
    fields.set("wire_bytes", op == "allreduce" ? 2 * bytes * (ranks - 1) / ranks : bytes * (ranks - 1) / ranks);
  }
  return fields;
}

std::vector<OpCase> emulated_cases(const Profile& cluster) {
  require<BadInput>(cluster.contention.none(), "cluster {}: found [contention] factors, which pacing does not have yet",
                    cluster.name);
  std::vector<OpCase> cases;
  for (const CommRow& row : cluster.comm)
    for (int i = 1; is_timed(row) && i <= kCollectiveSizes; ++i) {
      OpCase c = collective(row.op, row.network, row.ranks, i * kCollectiveStep);
      c.real_elements /= kProxyShare;
      c.modelled_s = row.alpha_s + c.bytes * row.beta_s_per_byte;
      cases.push_back(std::move(c));
    }
  for (const ComputeRow& row : cluster.compute)
    for (int i = 1; row.op == "gemm" && i <= kGemmSizes; ++i) {
      OpCase c = gemm(gemm_dim(i * kGemmStep));
      c.dtype = row.dtype;
      c.real_dim = kProxyGemmDim;
      c.modelled_s = row.alpha_s + c.flops * row.beta_s_per_flop;
      cases.push_back(std::move(c));
    }
  for (const ModuleRow& row : cluster.modules)
    if (row.name == "attention") std::ranges::move(attention_cases(row, cluster), std::back_inserter(cases));
  dilate(cases);
  return cases;
}

std::vector<OpCase> host_cases(const Profile& host) {
  std::vector<OpCase> cases;
  const auto add = [&](const char* op, Network network, int ranks) {
    for (int i = 1; i <= kCollectiveSizes; ++i)
      cases.push_back(collective(op, network, ranks, i * kCollectiveStep / kHostShare));
  };
  add("alltoall", Network::inter, host.nodes);
  add("allgather", Network::intra, host.ranks_per_node);
  add("reducescatter", Network::intra, host.ranks_per_node);
  add("allreduce", Network::inter, host.nodes);
  for (int i = 1; i <= kGemmSizes; ++i) cases.push_back(gemm(gemm_dim(i * kGemmStep / kHostShare)));
  return cases;
}

}  // namespace moe
