#include "commands/exchange/trace.h"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>
#include <span>
#include <tuple>

#include "commands/exchange/csv.h"
#include "moe/base/check.h"
#include "moe/base/log.h"
#include "moe/base/units.h"

namespace moe::exchange {

bool is_gemm_op(std::string_view name) {
  constexpr std::array<std::string_view, 8> kGemmOps{"aten::mm",          "aten::addmm",
                                                     "aten::bmm",         "aten::baddbmm",
                                                     "aten::_grouped_mm", "aten::_addmm_activation",
                                                     "aten::_scaled_mm",  "aten::_scaled_grouped_mm"};
  return std::ranges::find(kGemmOps, name) != kGemmOps.end();
}

namespace {

// The names of collectives in c10d and NCCL. `of_output`: the volume is the output's size, not the input's.
struct NamedCollective {
  std::string_view name;
  Op op;
  bool of_output;
};
constexpr std::array<NamedCollective, 20> kCollectives{{{"allreduce", Op::allreduce, false},
                                                        {"all_reduce", Op::allreduce, false},
                                                        {"allreduce_coalesced", Op::allreduce, false},
                                                        {"allgather", Op::allgather, true},
                                                        {"all_gather", Op::allgather, true},
                                                        {"_allgather_base", Op::allgather, true},
                                                        {"all_gather_into_tensor_coalesced", Op::allgather, true},
                                                        {"allgather_into_tensor_coalesced", Op::allgather, true},
                                                        {"reduce_scatter", Op::reducescatter, false},
                                                        {"_reduce_scatter_base", Op::reducescatter, false},
                                                        {"reduce_scatter_tensor_coalesced", Op::reducescatter, false},
                                                        {"all_to_all", Op::alltoall, false},
                                                        {"all_to_allv", Op::alltoall, false},
                                                        {"alltoall", Op::alltoall, false},
                                                        {"alltoall_base", Op::alltoall, false},
                                                        {"all_to_all_single", Op::alltoall, false},
                                                        {"ncclAllReduce", Op::allreduce, false},
                                                        {"ncclAllGather", Op::allgather, true},
                                                        {"ncclReduceScatter", Op::reducescatter, false},
                                                        {"ncclAlltoAll", Op::alltoall, false}}};

struct NamedType {
  std::string_view name;
  int bytes;
  std::string_view dtype;  // our name of the type; empty: none
};
constexpr std::array<NamedType, 24> kTypes{{{"Float", 4, "float32"},
                                            {"float", 4, "float32"},
                                            {"float32", 4, "float32"},
                                            {"Double", 8, "float64"},
                                            {"double", 8, "float64"},
                                            {"float64", 8, "float64"},
                                            {"Half", 2, "float16"},
                                            {"c10::Half", 2, "float16"},
                                            {"float16", 2, "float16"},
                                            {"BFloat16", 2, "bfloat16"},
                                            {"c10::BFloat16", 2, "bfloat16"},
                                            {"bfloat16", 2, "bfloat16"},
                                            {"Int", 4, ""},
                                            {"Long", 8, ""},
                                            {"Byte", 1, ""},
                                            {"Char", 1, ""},
                                            {"Bool", 1, ""},
                                            {"UInt8", 1, ""},
                                            {"Short", 2, ""},
                                            {"UInt16", 2, ""},
                                            {"UInt32", 4, ""},
                                            {"UInt64", 8, ""},
                                            {"Float8_e4m3fn", 1, ""},
                                            {"Float8_e5m2", 1, ""}}};

// Parts of the names of GEMM kernels, used if the operation that launched one is unknown.
constexpr std::array<std::string_view, 11> kGemmKernels{"gemm",  "cutlass", "wgmma",  "xmma",   "nvjet", "sm80_",
                                                        "sm90_", "sm100_",  "cublas", "splitK", "Cijk_"};
constexpr std::array<std::string_view, 5> kAttentionKernels{"flash_fwd", "flash_bwd", "fmha", "attention", "sdpa"};

// The size of a product (m, k) x (k, n) that is computed `batch` times.
struct GemmSize {
  double m = 0, k = 0, n = 0, batch = 1;

  double multiplied() const { return batch * m * k * n; }
  // Returns whether a matrix is so thin that memory, not arithmetic, determines the time.
  bool is_thin() const {
    constexpr double kThin = 16;  // rows of a tile of the matrix units
    return std::min({m, k, n}) < kThin;
  }
};

using Dims = std::vector<std::vector<double>>;

// Returns the index of the first factor among the inputs; dims.size() if there is none. In addmm and its like the
// addend comes first; outputs and scales come last. For other operations (--map), the last two matrices count.
size_t first_factor(const LaunchingOp& op) {
  const Dims& dims = op.dims;
  const auto is_matrix = [&](size_t i) { return i < dims.size() && dims[i].size() >= 2; };
  const bool adds = op.name == "aten::addmm" || op.name == "aten::baddbmm" || op.name == "aten::_addmm_activation";
  size_t first = adds ? 1 : 0;
  if (!is_gemm_op(op.name))
    for (size_t i = 0; i + 1 < dims.size(); ++i)
      if (is_matrix(i) && is_matrix(i + 1)) first = i;
  return is_matrix(first) && is_matrix(first + 1) ? first : dims.size();
}

// Returns the size by the shapes of the operation's inputs; none if they are missing or not those of a product.
std::optional<GemmSize> gemm_size(const LaunchingOp& op) {
  const size_t first = first_factor(op);
  if (first == op.dims.size()) return std::nullopt;
  const auto &a = op.dims[first], &b = op.dims[first + 1];
  GemmSize size{.m = a[a.size() - 2], .k = a.back(), .n = b.back()};
  if (b[b.size() - 2] != size.k) {
    if (b.back() != size.k) return std::nullopt;
    size.n = b[b.size() - 2];  // a weight stored as (n, k), as in linear layers
  }
  // The groups of a 3-D factor divide the rows or columns of the other factor.
  const bool is_grouped = op.name.find("grouped_mm") != std::string::npos;
  if (!is_grouped || b.size() > 2)
    for (size_t i = 0; i + 2 < a.size(); ++i) size.batch *= a[i];
  return size.multiplied() > 0 ? std::optional(size) : std::nullopt;
}

enum class KernelKind : uint8_t { collective, gemm, attention, other };

// A row of --map: the kind of the kernels whose names contain `letters`.
struct MappedKernel {
  std::string letters;
  KernelKind kind;
  Op op = Op::none;  // for a collective
};

bool has_any(std::string_view name, std::span<const std::string_view> parts) {
  return std::ranges::any_of(parts, [&](auto part) { return name.find(part) != std::string_view::npos; });
}

// Returns the beginning of a kernel's name, because names of templates have thousands of letters.
std::string short_name(const std::string& name) {
  constexpr size_t kLetters = 80;
  return name.size() <= kLetters ? name : name.substr(0, kLetters) + "...";
}

std::vector<MappedKernel> map_of(const std::string& path) {
  std::vector<MappedKernel> map;
  if (path.empty()) return map;
  const CsvTable csv = read_csv(path);
  const size_t kernel = csv.column("kernel"), kind = csv.column("kind");
  for (const CsvTable::Row& row : csv.rows) {
    const std::string& what = row.cells[kind];
    const auto op = find_op(what);
    MappedKernel mapped{row.cells[kernel], KernelKind::other};
    if (op && facts_of(*op).collective) {
      mapped.kind = KernelKind::collective;
      mapped.op = *op;
    } else if (what == "gemm" || what == "attention") {
      mapped.kind = what == "gemm" ? KernelKind::gemm : KernelKind::attention;
    } else {
      require<BadInput>(what == "other", "{}: found '{}', expected a collective, gemm, attention or other",
                        csv.where(row, kind), what);
    }
    map.push_back(std::move(mapped));
  }
  return map;
}

// Counts of the contents of one trace, for messages.
struct TraceCounts {
  struct Sum {
    int kernels = 0;
    double us = 0;
    void add(double more_us) { ++kernels, us += more_us; }
    std::string text() const { return fmt::format("{} ({})", kernels, human_seconds(us * 1e-6)); }
  };
  Sum collectives, gemms, attention, unknown, sizeless, other;
  Sum without_arguments;  // collectives without sizes, because NCCL's arguments are missing
  int without_duration = 0;
  std::map<int64_t, Sum> streams;
  std::map<std::string, Sum> others;
};

class TraceImport {
 public:
  TraceImport(const ImportOptions& options, const TraceNeeds& needs)
      : options_(options), needs_(needs), map_(map_of(options.map)) {}

  void add(const RankTrace& trace) {
    TraceCounts counts;
    path_ = trace.path;
    places_.clear();
    gemms_of_trace_.clear();
    for (const TimedKernel& kernel : trace.kernels) add_kernel(trace, kernel, counts);
    for (const auto& [id, gemm] : gemms_of_trace_) {
      gemms_.push_back(gemm);
      counts.gemms.add(gemm.sample.seconds * 1e6);
    }
    lacks_arguments_ |= counts.without_arguments.kernels > 0;
    world_size_ = std::max(world_size_, trace.world_size);
    if (!trace.host.empty()) ++ranks_of_host_[trace.host];
    on_gpu_ |= trace.on_gpu;
    log_counts(trace, counts);
  }

  void write() const {
    ImportedSamples samples(on_gpu_ ? "nccl" : "gloo");
    for (const auto& [place, sample] : collectives_) samples.add(sample);
    for (const ImportedGemm& gemm : gemms_)
      if (!gemm.is_thin || !has_thick(gemm.sample.dtype)) samples.add(gemm.sample);
    if (options_.ranks_per_node)
      samples.note_cluster_size(
          {(world_size_ + *options_.ranks_per_node - 1) / *options_.ranks_per_node, *options_.ranks_per_node});
    else if (options_.network == "intra")
      samples.note_cluster_size({1, world_size_});
    for (const auto& [host, ranks] : ranks_of_host_)
      samples.note_cluster_size({static_cast<int>(ranks_of_host_.size()), ranks});
    require<BadInput>(!samples.empty() || !lacks_arguments_,
                      "{}: found collectives without NCCL's arguments, expected {}", options_.files.front(),
                      needs_.arguments);
    require<BadInput>(!samples.empty(), "{}: found no collective and no GEMM with sizes, expected {}",
                      options_.files.front(), needs_.sizes);
    if (const int thin = thin_gemms(); thin > 0)
      log_info(fmt::format("{} GEMMs with fewer than 16 rows, columns or terms are left out: memory takes their time",
                           thin));
    samples.write(options_);
  }

 private:
  struct ImportedGemm {
    ImportedSample sample;
    bool is_thin = false;
  };

  // Identifies a collective on all its ranks: group, operation, its number in the group (-1: not in the trace, and then
  // its size is included), and how many equal ones came before.
  using Place = std::tuple<std::string, std::string, int64_t, int>;

  KernelKind kind_of(const TimedKernel& kernel, const LaunchingOp* op, Op& collective) const {
    for (const MappedKernel& mapped : map_)
      if (kernel.name.find(mapped.letters) != std::string::npos) {
        collective = mapped.op;
        return mapped.kind;
      }
    if (kernel.comm || kernel.name.find("nccl") != std::string::npos || (op != nullptr && op->comm))
      return KernelKind::collective;
    if (has_any(kernel.name, kAttentionKernels)) return KernelKind::attention;
    const bool is_gemm =
        op != nullptr ? is_gemm_op(op->name) : is_gemm_op(kernel.name) || has_any(kernel.name, kGemmKernels);
    return is_gemm ? KernelKind::gemm : KernelKind::other;
  }

  void add_kernel(const RankTrace& trace, const TimedKernel& kernel, TraceCounts& counts) {
    const auto found = trace.operations.find(kernel.external_id);
    const LaunchingOp* op = found == trace.operations.end() ? nullptr : &found->second;
    Op collective = Op::none;
    if (!(kernel.us > 0)) {
      ++counts.without_duration;
      return;
    }
    counts.streams[kernel.stream].add(kernel.us);
    switch (kind_of(kernel, op, collective)) {
      case KernelKind::collective: {
        const auto& comm = kernel.comm || op == nullptr ? kernel.comm : op->comm;
        if (!comm) counts.without_arguments.add(kernel.us);
        if (comm && collective == Op::none && !is_known(comm->name))
          counts.unknown.add(kernel.us);
        else
          (comm && add_collective(kernel, *comm, collective) ? counts.collectives : counts.sizeless).add(kernel.us);
        break;
      }
      case KernelKind::gemm:
        if (op == nullptr || !add_gemm(kernel, *op)) counts.sizeless.add(kernel.us);
        break;
      case KernelKind::attention:
        counts.attention.add(kernel.us);
        break;
      case KernelKind::other:
        counts.other.add(kernel.us);
        counts.others[kernel.name].add(kernel.us);
    }
  }

  static bool is_known(const std::string& collective) {
    return std::ranges::find(kCollectives, collective, &NamedCollective::name) != kCollectives.end();
  }

  // A rank that comes early waits inside its kernel, so the shortest time over the traces of several ranks counts.
  bool add_collective(const TimedKernel& kernel, const CommArguments& comm, Op mapped) {
    const auto* named = std::ranges::find(kCollectives, comm.name, &NamedCollective::name);
    const auto* type = std::ranges::find(kTypes, comm.dtype, &NamedType::name);
    const bool known = named != kCollectives.end();
    if ((!known && mapped == Op::none) || type == kTypes.end() || comm.group_size < 2) return false;
    ImportedSample s;
    s.op = mapped == Op::none ? named->op : mapped;
    const bool of_output = known ? named->of_output : s.op == Op::allgather;
    s.bytes = (of_output ? comm.elements_out : comm.elements_in) * type->bytes;
    // If ranks send different amounts, the one that sends or receives the most determines the time.
    if (s.op == Op::alltoall) s.bytes = std::max(comm.elements_in, comm.elements_out) * type->bytes;
    s.ranks = comm.group_size;
    s.network = network_of_group(comm);
    s.seconds = kernel.us * 1e-6;
    if (s.bytes <= 0) return false;
    const std::string group = fmt::format("{} {}", comm.group, fmt::join(comm.ranks, ","));
    const std::string size = comm.sequence < 0 ? fmt::format(" {:.0f}", s.bytes) : "";
    const std::string what = fmt::format("{} {}{}", name_of(s.op), s.ranks, size);
    const Place place{group, what, comm.sequence, places_[{group, what, comm.sequence, 0}]++};
    const auto [at, fresh] = collectives_.try_emplace(place, s);
    at->second.seconds = std::min(at->second.seconds, s.seconds);
    at->second.bytes = std::max(at->second.bytes, s.bytes);
    return true;
  }

  std::string network_of_group(const CommArguments& comm) const {
    if (!options_.network.empty()) return options_.network;
    if (!comm.network.empty()) return comm.network;
    if (!options_.ranks_per_node || comm.ranks.empty())
      return requested_network(options_, fmt::format("{} {}", path_,
                                                     comm.ranks.empty() ? "(without the ranks of its groups)"
                                                                        : "(without --ranks-per-node)"));
    const auto node = [&](int rank) { return rank / *options_.ranks_per_node; };
    const bool inside = std::ranges::all_of(comm.ranks, [&](int r) { return node(r) == node(comm.ranks.front()); });
    return inside ? "intra" : "inter";
  }

  // Several kernels of one operation (a split over k, and the sum of its parts) count as one GEMM.
  bool add_gemm(const TimedKernel& kernel, const LaunchingOp& op) {
    const auto* type = std::ranges::find(kTypes, op.dtype, &NamedType::name);
    const auto size = gemm_size(op);
    if (!size || type == kTypes.end() || type->dtype.empty()) return false;
    ImportedGemm& gemm = gemms_of_trace_[kernel.external_id];
    gemm.is_thin = size->is_thin();
    gemm.sample.op = Op::gemm;
    gemm.sample.dtype = type->dtype;
    gemm.sample.flops = kFlopsPerMac * size->multiplied();
    gemm.sample.seconds += kernel.us * 1e-6;
    return true;
  }

  bool has_thick(const std::string& dtype) const {
    return std::ranges::any_of(gemms_, [&](const auto& g) { return !g.is_thin && g.sample.dtype == dtype; });
  }

  // Returns how many GEMMs are left out because memory determines their time; all are kept if all are thin.
  int thin_gemms() const {
    return static_cast<int>(std::ranges::count_if(
        gemms_, [&](const ImportedGemm& gemm) { return gemm.is_thin && has_thick(gemm.sample.dtype); }));
  }

  void log_counts(const RankTrace& trace, const TraceCounts& counts) const {
    log_info(fmt::format(
        "{}: {} collectives, {} GEMMs; left out: attention {}, collectives of no row {}, without sizes {}, others {}",
        trace.path, counts.collectives.text(), counts.gemms.text(), counts.attention.text(), counts.unknown.text(),
        counts.sizeless.text(), counts.other.text()));
    if (counts.without_duration > 0)
      log_info(
          fmt::format("{}: {} kernels without a duration above 0 are left out", trace.path, counts.without_duration));
    if (counts.without_arguments.kernels > 0)
      log_info(fmt::format("{}: collectives without NCCL's arguments: {}; expected {}", trace.path,
                           counts.without_arguments.text(), needs_.arguments));
    for (const auto& [stream, sum] : counts.streams)
      log_decision(fmt::format("{}: stream {}: {}", trace.path, stream, sum.text()));
    const auto longest = std::ranges::max_element(counts.others, {}, [](const auto& o) { return o.second.us; });
    if (longest != counts.others.end())
      log_info(fmt::format("the longest of the others is {}, {}; --map says what it is", short_name(longest->first),
                           longest->second.text()));
  }

  const ImportOptions& options_;
  const TraceNeeds needs_;
  std::vector<MappedKernel> map_;
  std::string path_;  // file of the current trace
  std::map<Place, ImportedSample> collectives_;
  std::map<Place, int> places_;                     // number of collectives of each place in the current trace
  std::map<int64_t, ImportedGemm> gemms_of_trace_;  // by external id
  std::vector<ImportedGemm> gemms_;
  std::map<std::string, int> ranks_of_host_;
  int world_size_ = 0;
  bool on_gpu_ = false, lacks_arguments_ = false;
};

}  // namespace

void import_traces(const ImportOptions& options, const TraceNeeds& needs,
                   const std::function<void(const AddTrace&)>& read) {
  TraceImport traces(options, needs);
  read([&](const RankTrace& trace) { traces.add(trace); });
  traces.write();
}

}  // namespace moe::exchange
