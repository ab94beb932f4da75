// Traces of PyTorch's profiler: collectives and GEMMs become samples; attention, copies and what no name tells are
// counted and left out.
#include "exchange/kineto.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <tuple>
#include <utility>

#include "exchange/csv.h"
#include "exchange/formats.h"
#include "exchange/import.h"
#include "exchange/json_fields.h"
#include "moe/base/check.h"
#include "moe/base/files.h"
#include "moe/base/json.h"
#include "moe/base/log.h"
#include "moe/base/units.h"

namespace moe::exchange {
namespace {

// How c10d names collectives, and whose elements are the volume.
struct NamedCollective {
  std::string_view name;
  Op op;
  bool of_output;
};
constexpr std::array<NamedCollective, 16> kCollectives{{{"allreduce", Op::allreduce, false},
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
                                                        {"all_to_all_single", Op::alltoall, false}}};

struct NamedType {
  std::string_view name;
  int bytes;
  std::string_view dtype;  // ours; empty: none
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

// Names of GEMM kernels, where the operation that launched one is unknown.
constexpr std::array<std::string_view, 11> kGemmKernels{"gemm",  "cutlass", "wgmma",  "xmma",   "nvjet", "sm80_",
                                                        "sm90_", "sm100_",  "cublas", "splitK", "Cijk_"};
constexpr std::array<std::string_view, 5> kAttentionKernels{"flash_fwd", "flash_bwd", "fmha", "attention", "sdpa"};

enum class KernelKind : uint8_t { collective, gemm, attention, other };

// A row of --map: what kernels whose names have these letters do.
struct MappedKernel {
  std::string letters;
  KernelKind kind;
  Op op = Op::none;  // of a collective
};

bool has_any(std::string_view name, std::span<const std::string_view> parts) {
  return std::ranges::any_of(parts, [&](auto part) { return name.find(part) != std::string_view::npos; });
}

// Returns the beginning of a kernel's name: templates make names of thousands of letters.
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
    if (op && facts_of(*op).collective)
      mapped.kind = KernelKind::collective, mapped.op = *op;
    else if (what == "gemm" || what == "attention")
      mapped.kind = what == "gemm" ? KernelKind::gemm : KernelKind::attention;
    else
      require<BadInput>(what == "other", "{}: found '{}', expected a collective, gemm, attention or other",
                        csv.where(row, kind), what);
    map.push_back(std::move(mapped));
  }
  return map;
}

// Counts what one trace held, for people.
struct TraceCounts {
  struct Sum {
    int kernels = 0;
    double us = 0;
    void add(double more_us) { ++kernels, us += more_us; }
    std::string text() const { return fmt::format("{} ({})", kernels, human_seconds(us * 1e-6)); }
  };
  Sum collectives, gemms, attention, unknown, sizeless, other;
  Sum without_arguments;  // of the collectives without sizes: NCCL's arguments are missing
  int without_duration = 0;
  std::map<int64_t, Sum> streams;
  std::map<std::string, Sum> others;
};

class TraceImport {
 public:
  explicit TraceImport(const ImportOptions& options) : options_(options), map_(map_of(options.map)) {}

  void add(const KinetoTrace& trace) {
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
    on_gpu_ |= trace.on_gpu;
    say(trace, counts);
  }

  void write() const {
    ImportedSamples samples(on_gpu_ ? "nccl" : "gloo");
    for (const auto& [place, sample] : collectives_) samples.add(sample);
    for (const ImportedGemm& gemm : gemms_)
      if (!gemm.is_thin || !has_thick(gemm.sample.dtype)) samples.add(gemm.sample);
    if (options_.ranks_per_node)
      samples.see({(world_size_ + *options_.ranks_per_node - 1) / *options_.ranks_per_node, *options_.ranks_per_node});
    else if (options_.network == "intra")
      samples.see({1, world_size_});
    require<BadInput>(
        !samples.empty() || !lacks_arguments_,
        "{}: found collectives without NCCL's arguments, expected \"Collective name\", \"In msg nelems\", "
        "\"Group size\" and \"dtype\", which the profiler of PyTorch 2.3 and later writes",
        options_.files.front());
    require<BadInput>(!samples.empty(),
                      "{}: found no collective and no GEMM with sizes, expected a trace with record_shapes=True",
                      options_.files.front());
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

  // Identifies a collective on all its ranks: group, operation, its number in the group (-1: the trace doesn't say, and
  // its size counts too), and how many like it came before.
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

  void add_kernel(const KinetoTrace& trace, const TimedKernel& kernel, TraceCounts& counts) {
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

  // A rank that comes early waits in its kernel: of several ranks' traces the shortest counts.
  bool add_collective(const TimedKernel& kernel, const CommArguments& comm, Op mapped) {
    const auto* named = std::ranges::find(kCollectives, comm.name, &NamedCollective::name);
    const auto* type = std::ranges::find(kTypes, comm.dtype, &NamedType::name);
    const bool known = named != kCollectives.end();
    if ((!known && mapped == Op::none) || type == kTypes.end() || comm.group_size < 2) return false;
    ImportedSample s;
    s.op = mapped == Op::none ? named->op : mapped;
    const bool of_output = known ? named->of_output : s.op == Op::allgather;
    s.bytes = (of_output ? comm.elements_out : comm.elements_in) * type->bytes;
    // Where ranks send different amounts, the one that sends or receives the most sets the pace.
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
    if (!options_.ranks_per_node || comm.ranks.empty())
      return network_asked(options_, fmt::format("{} {}", path_,
                                                 comm.ranks.empty() ? "(without the ranks of its groups)"
                                                                    : "(without --ranks-per-node)"));
    const auto node = [&](int rank) { return rank / *options_.ranks_per_node; };
    const bool inside = std::ranges::all_of(comm.ranks, [&](int r) { return node(r) == node(comm.ranks.front()); });
    return inside ? "intra" : "inter";
  }

  // Several kernels of one operation (split over k, and what sums it up) are one GEMM.
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

  // Returns how many GEMMs are left out because memory takes their time; all are kept where all are thin.
  int thin_gemms() const {
    return static_cast<int>(std::ranges::count_if(
        gemms_, [&](const ImportedGemm& gemm) { return gemm.is_thin && has_thick(gemm.sample.dtype); }));
  }

  static void say(const KinetoTrace& trace, const TraceCounts& counts) {
    log_info(fmt::format(
        "{}: {} collectives, {} GEMMs; left out: attention {}, collectives of no row {}, without sizes {}, others {}",
        trace.path, counts.collectives.text(), counts.gemms.text(), counts.attention.text(), counts.unknown.text(),
        counts.sizeless.text(), counts.other.text()));
    if (counts.without_duration > 0)
      log_info(
          fmt::format("{}: {} kernels without a duration above 0 are left out", trace.path, counts.without_duration));
    if (counts.without_arguments.kernels > 0)
      log_info(fmt::format("{}: collectives without NCCL's arguments, which PyTorch 2.3 and later write: {}",
                           trace.path, counts.without_arguments.text()));
    for (const auto& [stream, sum] : counts.streams)
      log_decision(fmt::format("{}: stream {}: {}", trace.path, stream, sum.text()));
    const auto longest = std::ranges::max_element(counts.others, {}, [](const auto& o) { return o.second.us; });
    if (longest != counts.others.end())
      log_info(fmt::format("the longest of the others is {}, {}; --map says what it is", short_name(longest->first),
                           longest->second.text()));
  }

  const ImportOptions& options_;
  std::vector<MappedKernel> map_;
  std::string path_;  // of the trace that is read
  std::map<Place, ImportedSample> collectives_;
  std::map<Place, int> places_;                     // of the trace that is read: how many of them came
  std::map<int64_t, ImportedGemm> gemms_of_trace_;  // by external id
  std::vector<ImportedGemm> gemms_;
  int world_size_ = 0;
  bool on_gpu_ = false, lacks_arguments_ = false;
};

}  // namespace

void import_kineto(const ImportOptions& options) {
  TraceImport traces(options);
  for (const std::string& path : options.files) traces.add(read_kineto(path));
  traces.write();
}

namespace {

using Json = nlohmann::json;

// Reads a list, or its text "[0, 1, 2]"; some traces cut it short with dots, which leaves it unknown.
std::vector<int> ranks_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return {};
  const Json list = found->is_string() ? json_if_valid<Json>(found->get<std::string>()).value_or(Json()) : *found;
  std::vector<int> ranks;
  if (!list.is_array()) return {};
  for (const Json& rank : list) {
    if (!rank.is_number_integer() || !std::in_range<int>(rank.get<int64_t>())) return {};
    ranks.push_back(rank.get<int>());
  }
  return ranks;
}

// Returns 0, unknown, where no group is that large.
int ranks_in(const Json& object, const char* key, int64_t otherwise) {
  const int64_t ranks = whole_at(object, key, otherwise);
  return std::in_range<int>(ranks) ? static_cast<int>(ranks) : 0;
}

std::optional<CommArguments> comm_of(const Json& args) {
  CommArguments c;
  c.name = text_at(args, "Collective name");
  if (c.name.empty()) return std::nullopt;
  c.dtype = text_at(args, "dtype");
  c.group = text_at(args, "Process Group Name");
  c.ranks = ranks_at(args, "Process Group Ranks");
  c.group_size = ranks_in(args, "Group size", static_cast<int64_t>(c.ranks.size()));
  c.sequence = whole_at(args, "Seq", -1);
  c.elements_in = number_at(args, "In msg nelems");
  c.elements_out = number_at(args, "Out msg nelems");
  return c;
}

std::vector<std::vector<double>> dims_of(const Json& args) {
  std::vector<std::vector<double>> dims;
  for (const Json& of_input : list_at(args, "Input Dims")) {
    std::vector<double>& sizes = dims.emplace_back();
    if (!of_input.is_array()) continue;
    for (const Json& size : of_input)
      if (size.is_number()) sizes.push_back(size.get<double>());
  }
  return dims;
}

// Returns the type of the first input that is a matrix.
std::string matrix_type(const Json& args, const std::vector<std::vector<double>>& dims) {
  const Json types = list_at(args, "Input type");
  for (size_t i = 0; i < dims.size() && i < types.size(); ++i)
    if (dims[i].size() >= 2 && types[i].is_string()) return types[i].get<std::string>();
  return {};
}

// Chrome's form of a list of events may lack its end, since those who trace may be killed.
void close_array(std::string& text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string::npos || text[first] != '[' || json_outline(text).open_levels != 1) return;
  text.resize(text.find_last_not_of(kBlanks) + 1);
  if (text.ends_with(',')) text.pop_back();
  text += ']';
}

class EventReader {
 public:
  explicit EventReader(KinetoTrace& trace) : trace_(trace) {}

  void read(const Json& event) {
    if (text_at(event, "ph") != "X" || !event.contains("name")) return;
    const std::string category = text_at(event, "cat");
    const Json args = object_at(event, "args");
    if (category == "kernel") trace_.kernels.push_back(timed(event, args));
    if (category == "cpu_op" || category == "user_annotation") operation(event, args);
  }

  // Takes the operations' own times in a trace without kernels. `groups`: of the processes, as the trace lists them.
  void finish(const Json& groups) {
    trace_.on_gpu = !trace_.kernels.empty();
    if (!trace_.on_gpu) trace_.kernels = std::move(on_cpu_);
    std::ranges::stable_sort(trace_.kernels, {}, &TimedKernel::start_us);
    if (trace_.on_gpu || groups.size() != 1) return;
    for (TimedKernel& op : trace_.kernels)
      if (op.comm) complete_group(groups.front(), *op.comm);
  }

 private:
  static TimedKernel timed(const Json& event, const Json& args) {
    TimedKernel kernel{text_at(event, "name"), number_at(event, "ts"), number_at(event, "dur")};
    kernel.stream = whole_at(args, "stream", whole_at(event, "tid", 0));
    kernel.external_id = whole_at(args, "External id", whole_at(args, "external id", -1));
    kernel.comm = comm_of(args);
    return kernel;
  }

  // Reads Gloo's arguments: they say only what goes in, not over which group.
  static std::optional<CommArguments> gloo_comm(const std::string& name, const Json& args) {
    constexpr std::string_view kGloo = "gloo:";
    const std::vector<std::vector<double>> dims = dims_of(args);
    const Json types = list_at(args, "Input type");
    if (!name.starts_with(kGloo) || dims.empty() || types.empty() || !types[0].is_string()) return std::nullopt;
    CommArguments c;
    c.name = name.substr(kGloo.size());
    c.dtype = types[0].get<std::string>();
    c.elements_in = 1;
    for (const double size : dims.front()) c.elements_in *= size;
    return c;
  }

  static void complete_group(const Json& group, CommArguments& comm) {
    if (comm.group_size > 0) return;
    comm.group = text_at(group, "pg_name");
    comm.ranks = ranks_at(group, "ranks");
    comm.group_size = ranks_in(group, "pg_size", 0);
    comm.elements_out = comm.elements_in * comm.group_size;
  }

  void operation(const Json& event, const Json& args) {
    TimedKernel own = timed(event, args);
    if (!own.comm) own.comm = gloo_comm(own.name, args);
    LaunchingOp op{own.name, dims_of(args), {}, own.comm};
    op.dtype = matrix_type(args, op.dims);
    if (own.external_id >= 0 && (op.comm || !op.dims.empty())) {
      LaunchingOp& known = trace_.operations.try_emplace(own.external_id, op).first->second;
      if (op.comm) known.comm = op.comm;
    }
    if (own.comm || is_gemm_op(own.name)) on_cpu_.push_back(std::move(own));
  }

  KinetoTrace& trace_;
  std::vector<TimedKernel> on_cpu_;
};

}  // namespace

bool is_gemm_op(std::string_view name) {
  constexpr std::array<std::string_view, 8> kGemmOps{"aten::mm",          "aten::addmm",
                                                     "aten::bmm",         "aten::baddbmm",
                                                     "aten::_grouped_mm", "aten::_addmm_activation",
                                                     "aten::_scaled_mm",  "aten::_scaled_grouped_mm"};
  return std::ranges::find(kGemmOps, name) != kGemmOps.end();
}

KinetoTrace read_kineto(const std::string& path) {
  KinetoTrace trace;
  trace.path = path;
  EventReader reader(trace);
  bool events = false;
  // Events are read one by one, and dropped: traces are large.
  const auto keep = [&](int, Json::parse_event_t what, Json& parsed) {
    if (what != Json::parse_event_t::object_end || !parsed.is_object() || !parsed.contains("ph")) return true;
    reader.read(parsed);
    events = true;
    return false;
  };
  std::string text = text_of_file(path, "a Chrome trace (JSON)");
  repair_json_strings(text);
  close_array(text);
  const Json rest = json_from<Json>(text, path, "a Chrome trace (JSON)", keep);
  require<BadInput>(events, "{}: found no event, expected traceEvents of PyTorch's profiler", path);
  const Json distributed = object_at(rest, "distributedInfo");
  trace.world_size = static_cast<int>(whole_at(distributed, "world_size", 0));
  reader.finish(list_at(distributed, "pg_config"));
  return trace;
}

namespace {

using Dims = std::vector<std::vector<double>>;

// Returns the first of the two factors among the inputs; dims.size(): there is none. Sums come first in addmm and its
// like, outputs and scales last; of other operations, which --map names, the last two matrices are the factors.
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

}  // namespace

bool GemmSize::is_thin() const {
  constexpr double kThin = 16;  // rows of a tile of matrix units
  return std::min({m, k, n}) < kThin;
}

std::optional<GemmSize> gemm_size(const LaunchingOp& op) {
  const size_t first = first_factor(op);
  if (first == op.dims.size()) return std::nullopt;
  const auto &a = op.dims[first], &b = op.dims[first + 1];
  GemmSize size{.m = a[a.size() - 2], .k = a.back(), .n = b.back()};
  if (b[b.size() - 2] != size.k) {
    if (b.back() != size.k) return std::nullopt;
    size.n = b[b.size() - 2];  // a weight of (n, k), as linear layers keep it
  }
  // Groups of a 3-D factor share out the rows or columns of the other one.
  const bool is_grouped = op.name.find("grouped_mm") != std::string::npos;
  if (!is_grouped || b.size() > 2)
    for (size_t i = 0; i + 2 < a.size(); ++i) size.batch *= a[i];
  return size.multiplied() > 0 ? std::optional(size) : std::nullopt;
}

}  // namespace moe::exchange
