#include "moe/measure/ops/op_cases.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "moe/base/check.h"
#include "moe/base/units.h"
#include "moe/layer/layer_device.h"
#include "moe/measure/layers/proxy.h"
#include "moe/prices/fit.h"
#include "moe/prices/modules.h"
#include "moe/prices/price_curve.h"

namespace moe::measure {
namespace {

constexpr int64_t kCollectiveStep = int64_t{1} << 18, kGemmStep = int64_t{1} << 19;  // float elements
constexpr int kCollectiveSizes = 24, kGemmSizes = 12;
constexpr int64_t kProxyShare = 256;  // nominal elements per real element on an emulated cluster
constexpr int64_t kProxyGemmDim = 48;
constexpr double kMinSampleS = 2e-3;
constexpr int64_t kFloatBytes = 4;
constexpr int64_t kThreadShare = 16, kProcessShare = 4;  // divisors of FSMoE's sizes for ranks on CPUs
constexpr std::array<int64_t, 8> kModuleBatches{1, 2, 3, 4, 5, 8, 10, 16};  // chosen so that all sizes differ
// Sizes for GPUs, where a launch takes tens of microseconds and only much more work than that reaches full speed.
constexpr int64_t kMinGpuBytes = int64_t{1} << 20, kMaxGpuBytes = int64_t{1} << 28;
constexpr std::array<int64_t, 12> kGpuGemmDims{512, 768, 1024, 1536, 2048, 2560, 3072, 4096, 5120, 6144, 7168, 8192};

bool is_timed(const CommRow& row) {
  return row.algorithm == "direct" && (facts_of(row.op).collective || row.op == Op::sendrecv);
}

// Returns the direct row of an op over `ranks` ranks; null if there is none.
const CommRow* row_of(const Profile& cluster, Op op, Network network, int ranks) {
  const auto row = std::ranges::find_if(cluster.comm, [&](const CommRow& r) {
    return r.algorithm == "direct" && r.op == op && r.network == network && r.ranks == ranks;
  });
  return row == cluster.comm.end() ? nullptr : &*row;
}

double gemm_flops(int64_t dim) { return kFlopsPerMac * std::pow(static_cast<double>(dim), 3); }
int64_t gemm_dim(int64_t elements) { return std::llround(std::sqrt(static_cast<double>(elements))); }

// Returns the group that a network connects: all ranks of a node, or one rank of each node.
RankGroup spanning(Network network, int nodes, int ranks_per_node) {
  return network == Network::intra ? RankGroup{ranks_per_node, 1} : RankGroup{nodes, ranks_per_node};
}

OpCase communication(Op op, Network network, RankGroup group, int64_t bytes, DType dtype) {
  OpCase c;
  c.op = op;
  c.network = network;
  c.ranks = group.ranks;
  c.group = group;
  c.dtype = dtype;
  c.bytes = static_cast<double>(bytes);
  c.real_elements = bytes / bytes_of(dtype);
  return c;
}

OpCase gemm(int64_t dim, DType dtype) {
  OpCase c;
  c.op = Op::gemm;
  c.dtype = dtype;
  c.flops = gemm_flops(dim);
  c.real_dim = dim;
  return c;
}

OpCase module_case(const std::string& name, Phase phase, const LayerCase& shape) {
  OpCase c;
  c.op = Op::module;
  c.module = name;
  c.phase = phase;
  (is_priced_by_byte(name) ? c.bytes : c.flops) = module_size(module_of(name).value(), phase, shape);
  return c;
}

// Returns cases with B {1, 2, 4} x M {1024, 2048, 4096} at the row's sequence length, each size only once.
std::vector<OpCase> paced_module_cases(const ModuleRow& row, const Profile& cluster) {
  std::vector<OpCase> cases;
  std::set<double> sizes;
  for (const int64_t batch : {1, 2, 4})
    for (const int64_t dim : {1024, 2048, 4096}) {
      LayerCase shape;
      shape.layer.batch = batch;
      shape.layer.seq = row.seq.value_or(1024);
      shape.layer.model_dim = dim;
      shape.layer.hidden = 4 * dim;
      shape.layer.heads = shape.layer.kv_heads = 16;
      shape.layer.experts = cluster.nodes;
      shape.parallel.mp = cluster.ranks_per_node;
      shape = with_module(shape, module_of(row.name).value());
      OpCase c = module_case(row.name, row.phase, shape);
      c.seq = row.seq;
      c.real_dim = kProxyGemmDim;
      c.modelled_s = row.alpha_s + c.size() * row.beta();
      if (sizes.insert(c.size()).second) cases.push_back(std::move(c));
    }
  return cases;
}

// Returns the divisor of FSMoE's sizes for the ranks of a backend.
int64_t real_share(std::string_view backend) {
  return backend == "local" ? kThreadShare : backend == "gloo" ? kProcessShare : 1;
}

// Returns the volumes, rounded so that every rank's block has the same whole number of elements and the recorded volume
// equals the moved one.
std::set<int64_t> whole_volumes(const OpSizes& sizes, int64_t share, int ranks) {
  std::set<int64_t> volumes;
  for (const int64_t bytes : bytes_of(sizes, share)) {
    const int64_t least = int64_t{ranks} * bytes_of(sizes.dtype);
    volumes.insert(std::max<int64_t>(1, bytes / least) * least);
  }
  return volumes;
}

void dilate(std::vector<OpCase>& cases) {
  for (OpCase& c : cases) {
    double shortest = c.modelled_s;
    for (const OpCase& other : cases)
      if (other.series() == c.series()) shortest = std::min(shortest, other.modelled_s);
    c.dilation = std::max(1.0, kMinSampleS / shortest);
  }
}

}  // namespace

double OpPhases::seconds() const { return exchange_s + gather_s + (count - 1) * std::max(exchange_s, gather_s); }

std::string OpCase::series() const {
  if (op == Op::gemm) return fmt::format("gemm {}", name_of(dtype));
  if (op == Op::host_copy) return std::string(name_of(op));
  if (op == Op::module) return fmt::format("{} {}{}", module, name_of(phase), seq ? fmt::format(" {}", *seq) : "");
  return row_name(CommRow{
      .op = op, .network = network, .ranks = ranks, .ranks_per_node = nominal_ranks_per_node, .algorithm = algorithm});
}

std::string OpCase::key() const {
  std::string text = fmt::format("{} {:.0f}", series(), size());
  std::replace(text.begin(), text.end(), ' ', '/');
  return text;
}

Fields OpCase::parameters(const Profile& cluster) const {
  Fields fields = case_parameters(cluster, name_of(op));
  if (op == Op::gemm) {
    fields.set("dtype", std::string(name_of(dtype)));
    fields.set("flops", flops);
    fields.set("gemms", int64_t{1});
  } else if (op == Op::host_copy) {
    fields.set("bytes", bytes);
  } else if (op == Op::module) {
    fields.set("name", module);
    fields.set("phase", std::string(name_of(phase)));
    fields.set(bytes > 0 ? "bytes" : "flops", size());
    if (seq) fields.set("seq", *seq);
    if (shape) fields.set("layer", describe(shape->layer));
  } else {
    fields.set("network", std::string(name_of(network)));
    fields.set("ranks", int64_t{ranks});
    fields.set("dtype", std::string(name_of(dtype)));
    fields.set("bytes", bytes);
    fields.set("wire_bytes", bytes * wire_share(op, ranks));
    if (nominal_ranks_per_node > 0) fields.set("group_ranks_per_node", int64_t{nominal_ranks_per_node});
    if (is_dispatched()) fields.set("algorithm", algorithm);
  }
  return fields;
}

OpSizes sizes_for(DType layers, DeviceKind device) {
  OpSizes sizes;
  if (supports_dtype(device, layers)) sizes.dtype = layers;
  return sizes;
}

OpSizes gpu_sizes(const OpSizes& requested_sizes) {
  OpSizes sizes = requested_sizes;
  if (requested_sizes.end > 0) return sizes;
  sizes.begin = kMinGpuBytes;
  sizes.end = kMaxGpuBytes + 1;  // + 1 because the factor is rounded
  sizes.factor = std::sqrt(2.0);
  return sizes;
}

std::vector<int64_t> bytes_of(const OpSizes& sizes, int64_t share) {
  std::vector<int64_t> bytes;
  if (sizes.end == 0) {
    for (int i = 1; i <= kCollectiveSizes; ++i) bytes.push_back(i * kCollectiveStep / share * kFloatBytes);
    return bytes;
  }
  require<BadInput>(sizes.begin > 0 && sizes.begin <= sizes.end,
                    "sizes: found {} to {} bytes, expected 0 < least <= most", sizes.begin, sizes.end);
  require<BadInput>(sizes.step > 0 || sizes.factor > 1, "sizes: found factor {}, expected more than 1", sizes.factor);
  for (auto at = static_cast<double>(sizes.begin); at <= static_cast<double>(sizes.end);
       at = sizes.step > 0 ? at + static_cast<double>(sizes.step) : at * sizes.factor)
    bytes.push_back(std::llround(at));
  return bytes;
}

std::vector<OpCase> emulated_cases(const Profile& cluster, const OpSizes& sizes) {
  require<BadInput>(cluster.contention.none(),
                    "cluster {}: found [contention] factors, expected none: ops are timed one at a time", cluster.name);
  std::vector<OpCase> cases;
  for (const CommRow& row : cluster.comm)
    for (const int64_t bytes : is_timed(row) ? bytes_of(sizes, 1) : std::vector<int64_t>{}) {
      const RankGroup proxies = spanning(row.network, kProxyNodes, kProxyRanksPerNode);
      OpCase c = communication(row.op, row.network, proxies, bytes, sizes.dtype);
      c.ranks = row.ranks;
      c.nominal_ranks_per_node = row.ranks_per_node;
      c.real_elements /= kProxyShare;
      c.modelled_s = price_curve(row).seconds(c.bytes);
      cases.push_back(std::move(c));
    }
  for (const ComputeRow& row : cluster.compute)
    for (int i = 1; row.op == Op::gemm && i <= kGemmSizes; ++i) {
      OpCase c = gemm(gemm_dim(i * kGemmStep), row.dtype);
      c.real_dim = kProxyGemmDim;
      c.modelled_s = row.alpha_s + c.flops * row.beta_s_per_flop;
      cases.push_back(std::move(c));
    }
  for (const ModuleRow& row : cluster.modules)
    if (module_of(row.name) && row.beta() > 0)
      std::ranges::move(paced_module_cases(row, cluster), std::back_inserter(cases));
  dilate(cases);
  return cases;
}

std::vector<OpCase> real_cases(const Profile& cluster, std::string_view backend, const OpSizes& requested_sizes,
                               DeviceKind device, std::span<const std::pair<Network, RankGroup>> sums) {
  std::vector<OpCase> cases;
  const bool on_gpu = device == DeviceKind::cuda;
  const OpSizes sizes = on_gpu ? gpu_sizes(requested_sizes) : requested_sizes;
  std::set<std::string> known;
  const auto add = [&](Op op, Network network, RankGroup group) {
    if (group.ranks < 2 || !known.insert(communication(op, network, group, 0, sizes.dtype).series()).second) return;
    for (const int64_t bytes : whole_volumes(sizes, real_share(backend), group.ranks))
      cases.push_back(communication(op, network, group, bytes, sizes.dtype));
  };
  const RankGroup intra = spanning(Network::intra, cluster.nodes, cluster.ranks_per_node),
                  inter = spanning(Network::inter, cluster.nodes, cluster.ranks_per_node);
  const bool one_node = cluster.nodes == 1;  // on one node, experts are distributed over its ranks
  const auto [between_experts, experts] =
      one_node ? std::pair(Network::intra, intra) : std::pair(Network::inter, inter);
  add(Op::alltoall, between_experts, experts);
  add(Op::allgather, Network::intra, intra);
  add(Op::reducescatter, Network::intra, intra);
  add(Op::allreduce, between_experts, experts);
  for (const auto& [network, all] : {std::pair(Network::inter, inter), std::pair(Network::intra, intra)})
    if (all.ranks > 1) add(Op::sendrecv, network, {2, all.step});
  for (const auto& [network, group] : sums) add(Op::allreduce, network, group);
  if (on_gpu)
    for (const int64_t dim : kGpuGemmDims) cases.push_back(gemm(dim, sizes.dtype));
  else if (supports_dtype(device, sizes.dtype))
    for (int i = 1; i <= kGemmSizes; ++i) cases.push_back(gemm(gemm_dim(i * kGemmStep / kThreadShare), sizes.dtype));
  return cases;
}

std::vector<OpCase> emulated_parm_cases(const Profile& cluster, const OpSizes& sizes) {
  const int nodes = cluster.nodes, ranks = cluster.nodes * cluster.ranks_per_node;
  const CommRow* exchange = row_of(cluster, Op::a2a_ep_esp, Network::inter, ranks);
  if (exchange == nullptr) exchange = row_of(cluster, Op::alltoall, Network::inter, nodes);
  const CommRow* gather = row_of(cluster, Op::allgather, Network::intra, cluster.ranks_per_node);
  std::vector<OpCase> cases;
  if (nodes < 2 || exchange == nullptr || gather == nullptr) return cases;
  for (const Op op : {Op::a2a_ep_esp, Op::saa})
    for (const int64_t bytes : bytes_of(sizes, 1)) {
      OpCase c = communication(op, Network::inter, {kProxyNodes * kProxyRanksPerNode, 1}, bytes, sizes.dtype);
      c.ranks = ranks;
      c.real_elements /= kProxyShare;
      c.modelled_s = price_curve(*exchange).seconds(c.bytes);
      if (op == Op::saa) {
        const double gather_s = price_curve(*gather).seconds(c.bytes / nodes);
        c.phases = {nodes, {kProxyRanksPerNode, 1}, c.modelled_s / nodes, gather_s};
        c.modelled_s = c.phases.seconds();
      }
      cases.push_back(std::move(c));
    }
  dilate(cases);
  return cases;
}

std::vector<OpCase> real_parm_cases(const Profile& cluster, std::string_view backend, const OpSizes& requested_sizes,
                                    DeviceKind device) {
  std::vector<OpCase> cases;
  if (cluster.nodes < 2 || cluster.ranks_per_node < 2) return cases;
  const OpSizes sizes = device == DeviceKind::cuda ? gpu_sizes(requested_sizes) : requested_sizes;
  const RankGroup all{cluster.nodes * cluster.ranks_per_node, 1};
  for (const Op op : {Op::a2a_ep_esp, Op::saa})
    for (const int64_t bytes : whole_volumes(sizes, real_share(backend), all.ranks)) {
      OpCase& c = cases.emplace_back(communication(op, Network::inter, all, bytes, sizes.dtype));
      if (op == Op::saa) c.phases = {.count = cluster.nodes, .node = {cluster.ranks_per_node, 1}};
    }
  return cases;
}

std::vector<OpCase> emulated_dispatcher_cases(const Profile& cluster, const std::set<std::string>& dispatchers,
                                              const OpSizes& sizes) {
  std::vector<OpCase> cases;
  for (const CommRow& row : cluster.comm)
    for (const int64_t bytes : dispatchers.contains(row.algorithm) ? bytes_of(sizes, 1) : std::vector<int64_t>{}) {
      OpCase c = communication(row.op, row.network, {kProxyNodes * kProxyRanksPerNode, 1}, bytes, sizes.dtype);
      c.ranks = row.ranks;
      c.nominal_ranks_per_node = row.ranks_per_node;
      c.algorithm = row.algorithm;
      c.ranks_per_node = kProxyRanksPerNode;
      c.real_elements /= kProxyShare;
      c.modelled_s = price_curve(row).seconds(c.bytes);
      cases.push_back(std::move(c));
    }
  dilate(cases);
  return cases;
}

std::vector<OpCase> real_dispatcher_cases(const Profile& cluster, std::string_view backend,
                                          const std::set<std::string>& dispatchers, const OpSizes& requested_sizes,
                                          DeviceKind device) {
  std::vector<OpCase> cases;
  if (dispatchers.empty() || cluster.nodes < 2 || cluster.ranks_per_node < 2) return cases;
  const OpSizes sizes = device == DeviceKind::cuda ? gpu_sizes(requested_sizes) : requested_sizes;
  const RankGroup all{cluster.nodes * cluster.ranks_per_node, 1};
  std::vector<std::string> algorithms{CommRow().algorithm};
  algorithms.insert(algorithms.end(), dispatchers.begin(), dispatchers.end());
  for (const std::string& algorithm : algorithms)
    for (const int64_t bytes : whole_volumes(sizes, real_share(backend), all.ranks)) {
      OpCase& c = cases.emplace_back(communication(Op::alltoall, Network::inter, all, bytes, sizes.dtype));
      c.algorithm = algorithm;
      c.ranks_per_node = cluster.ranks_per_node;
    }
  return cases;
}

std::vector<OpCase> emulated_host_copies(const Profile& cluster, const OpSizes& sizes) {
  std::vector<OpCase> cases;
  for (const ComputeRow& row : cluster.compute)
    for (const int64_t bytes : row.op == Op::host_copy ? bytes_of(sizes, 1) : std::vector<int64_t>{}) {
      OpCase& c = cases.emplace_back(communication(row.op, Network::none, {}, bytes, sizes.dtype));
      c.real_elements /= kProxyShare;
      c.modelled_s = row.alpha_s + c.bytes * row.beta_s_per_byte;
    }
  dilate(cases);
  return cases;
}

std::vector<OpCase> real_host_copies(std::string_view backend, const OpSizes& requested_sizes, DeviceKind device) {
  const OpSizes sizes = device == DeviceKind::cuda ? gpu_sizes(requested_sizes) : requested_sizes;
  std::vector<OpCase> cases;
  for (const int64_t bytes : whole_volumes(sizes, real_share(backend), 1))
    cases.push_back(communication(Op::host_copy, Network::none, {}, bytes, sizes.dtype));
  return cases;
}

double buffer_bytes(const OpCase& c) {
  const double matrix = static_cast<double>(c.real_dim * c.real_dim), block = static_cast<double>(c.real_elements);
  const double dispatched = c.is_dispatched() ? 2 * c.ranks_per_node : 0;  // additional buffers of a node's leader
  const double elements = c.real_dim > 0 ? 3 * matrix : ((c.phases.count > 0 ? 3 : 2) + dispatched) * block;
  return static_cast<double>(bytes_of(c.dtype)) * elements;
}

std::vector<OpCase> module_cases(std::span<const std::string> modules, const Profile& host) {
  std::vector<OpCase> cases;
  for (const std::string& name : modules) {
    const Module module = module_of(name).value();
    const bool attention = module.kind == TaskKind::attention;
    for (const int64_t seq : attention ? std::vector<int64_t>{64, 128, 256} : std::vector<int64_t>{64})
      for (const Phase phase : {Phase::forward, Phase::backward})
        for (size_t i = 0; i < kModuleBatches.size(); ++i) {
          LayerShape layer;
          layer.batch = kModuleBatches[i];
          layer.seq = seq;
          layer.ffn = module.kind == TaskKind::expert ? ffn_from(module.part, "expert") : layer.ffn;
          layer.model_dim = (i % 2 == 0 ? 1 : 2) * std::max<int64_t>(64, block_of(layer.ffn));
          layer.hidden = 4 * layer.model_dim;
          layer.heads = layer.model_dim / 16;
          layer.experts = host.nodes;
          const LayerCase shape = with_module(complete(layer, {}, Rounding::ragged), module);
          OpCase& c = cases.emplace_back(module_case(name, phase, shape));
          if (attention) c.seq = seq;
          c.shape = shape;
        }
  }
  return cases;
}

}  // namespace moe::measure
