// Exports of Nsight Systems: NCCL's ranges give the size of a collective, and those of PyTorch's operators give the
// sizes of a GEMM.
#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "commands/exchange/formats.h"
#include "commands/exchange/trace.h"
#include "commands/shared/nsys_export.h"
#include "moe/base/check.h"
#include "moe/base/log.h"
#include "moe/base/units.h"

namespace moe::exchange {
namespace {

using commands::NsysExport;
using commands::NsysKernel;
using commands::NsysRange;

// Reads sizes such as "[[64, 128], [128, 48], []]".
std::vector<std::vector<double>> dims_of_text(std::string_view text) {
  std::vector<std::vector<double>> dims;
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[' && ++depth == 2) dims.emplace_back();
    if (text[at] == ']' && --depth == 0) break;
    double size = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), size);
    if (error != std::errc{}) continue;
    if (depth == 2) dims.back().push_back(size);
    at = static_cast<size_t>(end - text.data()) - 1;
  }
  return dims;
}

// Reads "aten::mm, op_id = 7, sizes = [[64, 128], [128, 48]]", the name that torch.autograd.profiler.emit_nvtx gives a
// range; none if the range is something else.
std::optional<LaunchingOp> operator_of_range(const std::string& range) {
  constexpr std::array<std::string_view, 3> kFields{", seq = ", ", op_id = ", ", sizes = ["};
  const bool has_field =
      std::ranges::any_of(kFields, [&](auto field) { return range.find(field) != std::string::npos; });
  if (!has_field && !range.starts_with("aten::")) return std::nullopt;
  LaunchingOp op{range.substr(0, range.find(',')), {}, {}, {}};
  const size_t sizes = range.find(kFields.back());
  if (sizes != std::string::npos)
    op.dims = dims_of_text(std::string_view(range).substr(sizes + kFields.back().size() - 1));
  return op;
}

struct NamePart {
  std::string_view part, dtype;  // name of the type in C++; empty: a type of 8 bits, for which no row exists
};

// Returns the type of a kernel such as nvjet_tst_... or nvjet_sm100_hsh_...: the letter of the first matrix.
std::optional<std::string_view> nvjet_type(std::string_view kernel) {
  constexpr std::string_view kPrefix = "nvjet_", kArchitecture = "sm";
  const size_t found = kernel.find(kPrefix);
  if (found == std::string_view::npos) return std::nullopt;
  kernel.remove_prefix(found + kPrefix.size());
  if (kernel.starts_with(kArchitecture)) kernel.remove_prefix(std::min(kernel.find('_'), kernel.size() - 1) + 1);
  constexpr std::array<NamePart, 5> kLetters{
      {{"t", "c10::BFloat16"}, {"h", "c10::Half"}, {"s", "float"}, {"d", "double"}, {"q", ""}}};
  for (const NamePart& letter : kLetters)
    if (kernel.starts_with(letter.part)) return letter.dtype;
  return std::nullopt;
}

// Returns the type of the matrices by the name of a GEMM's kernel; none if the name has no type.
std::optional<std::string_view> type_of_kernel(std::string_view kernel) {
  constexpr std::array<NamePart, 17> kParts{{{"e4m3", ""},
                                             {"e5m2", ""},
                                             {"fp8", ""},
                                             {"bf16", "c10::BFloat16"},
                                             {"bfloat16", "c10::BFloat16"},
                                             {"f16", "c10::Half"},
                                             {"fp16", "c10::Half"},
                                             {"half", "c10::Half"},
                                             {"h884gemm", "c10::Half"},
                                             {"hgemm", "c10::Half"},
                                             {"dgemm", "double"},
                                             {"f64", "double"},
                                             {"double", "double"},
                                             {"sgemm", "float"},
                                             {"f32", "float"},
                                             {"fp32", "float"},
                                             {"float", "float"}}};
  if (const auto type = nvjet_type(kernel)) return type;
  const auto* found =
      std::ranges::find_if(kParts, [&](const NamePart& p) { return kernel.find(p.part) != std::string_view::npos; });
  return found == kParts.end() ? std::nullopt : std::optional(found->dtype);
}

// A process and its GPU.
using ExportRank = std::pair<int64_t, int64_t>;

// The calls of NCCL that launched the kernels of one export.
class NcclCalls {
 public:
  explicit NcclCalls(const NsysExport& from) : from_(from) {
    int depth = 0;
    int64_t thread = 0;
    std::vector<int> grouped;
    for (int r = 0; r < std::ssize(from.ranges); ++r) {
      const NsysRange& range = at(r);
      if (range.thread != thread) {
        grouped.clear();
        depth = 0;
        thread = range.thread;
      }
      if (range.name == "ncclGroupStart") ++depth;
      if (range.nccl && range.nccl->bytes) (depth > 0 ? grouped : calls_[r]).push_back(r);
      if (range.name == "ncclGroupEnd" && depth > 0 && --depth == 0 && !grouped.empty())
        calls_[r] = std::exchange(grouped, {});
    }
    for (const NsysKernel& kernel : from.kernels)
      if (const int launched_in = call_around(kernel); launched_in >= 0) ++kernels_[launched_in];
  }

  // Returns the sizes that a kernel's call gives; none if no call does. The number of ranks is 0 if unknown.
  std::optional<CommArguments> arguments_of(const NsysKernel& kernel, const std::map<uint64_t, int>& ranks,
                                            const std::optional<int>& otherwise) const {
    const int call = call_around(kernel);
    if (call < 0 || kernels_.at(call) != 1) return std::nullopt;  // a call does not give the shares of several kernels
    const std::vector<int>& calls = calls_.at(call);
    const NsysRange& first = at(calls.front());
    CommArguments c;
    c.name = first.name;
    c.dtype = "Byte";
    if (first.nccl->communicator) c.group = fmt::format("{:#x}", *first.nccl->communicator);
    const auto known = ranks.find(first.nccl->communicator.value_or(0));
    c.group_size = known != ranks.end() ? known->second : otherwise.value_or(0);
    int sends = 0, receives = 0;
    for (const int each : calls) {
      const NsysRange& range = at(each);
      if (range.nccl->communicator != first.nccl->communicator) return std::nullopt;
      const bool sent = range.name == "ncclSend", received = range.name == "ncclRecv";
      if (!sent && !received && range.name != first.name) return std::nullopt;
      sends += sent ? 1 : 0;
      receives += received ? 1 : 0;
      add_elements(range, c);
    }
    const int messages = sends + receives;
    if (messages == 0) return c;
    if (messages != std::ssize(calls)) return std::nullopt;
    // PyTorch and users of NCCL write an AlltoAll as a group. A group with fewer messages belongs to pipeline stages.
    const int most = std::max(sends, receives);
    if (most > 1 && most < c.group_size - 1) return std::nullopt;
    if (most > 1) c.name = "all_to_allv";
    return c;
  }

 private:
  // Adds a call's bytes. NCCL gives those of one message, which is one rank's part if every rank has one.
  static void add_elements(const NsysRange& call, CommArguments& c) {
    const auto part = static_cast<double>(*call.nccl->bytes);
    const double whole = part * c.group_size;
    const bool is_alltoall = call.name == "ncclAlltoAll";
    if (call.name != "ncclRecv") c.elements_in += is_alltoall || call.name == "ncclReduceScatter" ? whole : part;
    if (call.name != "ncclSend") c.elements_out += is_alltoall || call.name == "ncclAllGather" ? whole : part;
  }

  const NsysRange& at(int range) const { return from_.ranges[range]; }

  // Returns the call, or the end of a group of calls, in which a kernel of NCCL was launched; -1 if there is none.
  int call_around(const NsysKernel& kernel) const {
    if (kernel.name.find("nccl") == std::string::npos) return -1;
    for (int r = kernel.range; r >= 0; r = at(r).parent)
      if (calls_.contains(r)) return r;
    return -1;
  }

  const NsysExport& from_;
  std::map<int, std::vector<int>> calls_;  // by range: the call itself, or the calls of the group that it ends
  std::map<int, int> kernels_;             // by range: number of kernels launched in it
};

bool is_point_to_point(const CommArguments& c) { return c.name == "ncclSend" || c.name == "ncclRecv"; }

class NsysImport {
 public:
  explicit NsysImport(const ImportOptions& options) : options_(options) {
    for (const std::string& path : options.files) exports_.push_back(commands::read_nsys_export(path));
    for (const NsysExport& from : exports_)
      for (const NsysRange& range : from.ranges)
        if (range.nccl && range.nccl->communicator && range.nccl->ranks && std::in_range<int>(*range.nccl->ranks))
          ranks_[*range.nccl->communicator] = static_cast<int>(*range.nccl->ranks);
  }

  std::vector<RankTrace> traces() {
    std::vector<RankTrace> traces;
    for (const NsysExport& from : exports_) add_traces(from, traces);
    check_apart(traces);
    set_sequences(traces);
    set_networks(traces);
    if (untyped_ > 0)
      log_info(fmt::format("{} GEMMs have kernels whose names tell no type of 16, 32 or 64 bits; --dtype says it",
                           untyped_));
    return traces;
  }

 private:
  void add_traces(const NsysExport& from, std::vector<RankTrace>& traces) {
    std::map<ExportRank, RankTrace> by_rank;
    const NcclCalls calls(from);
    for (const NsysKernel& kernel : from.kernels) {
      RankTrace& rank = by_rank[{kernel.process, kernel.device}];
      TimedKernel& timed = rank.kernels.emplace_back(
          TimedKernel{kernel.name, static_cast<double>(kernel.start_ns) * 1e-3, kernel.seconds() * 1e6});
      timed.stream = kernel.stream;
      timed.comm = calls.arguments_of(kernel, ranks_, options_.ranks);
      if (timed.comm && timed.comm->group_size == 0)
        bad_input(
            "--ranks: found none, and {} lacks the ncclCommInit of communicator {}; expected how many ranks it has",
            from.path, timed.comm->group.empty() ? "(unnamed)" : timed.comm->group);
      add_operator(from, kernel, timed, rank);
    }
    for (auto& [rank, trace] : by_rank) {
      constexpr int kThreadBits = 24;
      const int64_t process = (rank.first >> kThreadBits) & 0xFFFFFF;
      const std::string name = fmt::format("process {}, GPU {}", process, rank.second);
      require<BadInput>(seen_.insert({from.host, rank.first, rank.second}).second,
                        "{}: found {} of host '{}' a second time, expected each rank once", from.path, name, from.host);
      trace.path = by_rank.size() == 1 ? from.path : fmt::format("{} ({})", from.path, name);
      trace.host = from.host;
      trace.on_gpu = true;
      untyped_ += std::ranges::count_if(trace.operations, [](const auto& numbered) {
        return is_gemm_op(numbered.second.name) && numbered.second.dtype.empty();
      });
      traces.push_back(std::move(trace));
    }
  }

  // Sets the operator around a kernel's launch. Its type comes from its first kernel whose name has one.
  void add_operator(const NsysExport& from, const NsysKernel& kernel, TimedKernel& timed, RankTrace& rank) {
    for (int r = kernel.range; r >= 0; r = from.ranges[r].parent) {
      std::optional<LaunchingOp> op = operator_of_range(from.ranges[r].name);
      if (!op) continue;
      timed.external_id = r;
      LaunchingOp& known = rank.operations.try_emplace(r, std::move(*op)).first->second;
      if (!known.dtype.empty() || !is_gemm_op(known.name)) return;
      known.dtype = type_of_kernel(kernel.name).value_or(options_.dtype);
      return;
    }
  }

  // Throws BadInput if the ranks of a communicator recorded different numbers of its collectives, because then they
  // cannot be matched. Sends and receives are not compared: the middle stages of a pipeline have more.
  static void check_apart(const std::vector<RankTrace>& traces) {
    std::map<std::pair<std::string, std::string>, std::map<const RankTrace*, int>> counts;
    for (const RankTrace& trace : traces)
      for (const TimedKernel& kernel : trace.kernels)
        if (kernel.comm && !kernel.comm->group.empty() && !is_point_to_point(*kernel.comm))
          ++counts[{kernel.comm->group, kernel.comm->name}][&trace];
    for (const auto& [key, of_rank] : counts) {
      const auto [least, most] =
          std::ranges::minmax_element(of_rank, {}, [](const auto& counted) { return counted.second; });
      require<BadInput>(least->second == most->second,
                        "{}: found {} {} of communicator {}, and {} in {}; expected ranks that recorded the same steps",
                        most->first->path, most->second, key.second, key.first, least->second, least->first->path);
    }
  }

  // Numbers the collectives of each communicator, so that those of different sizes are matched too.
  static void set_sequences(std::vector<RankTrace>& traces) {
    for (RankTrace& trace : traces) {
      std::map<std::pair<std::string, std::string>, int64_t> next;
      for (TimedKernel& kernel : trace.kernels)
        if (kernel.comm && !kernel.comm->group.empty())
          kernel.comm->sequence = next[{kernel.comm->group, kernel.comm->name}]++;
    }
  }

  // Sets the network of each communicator of which every rank was recorded. Clears the hosts unless all were complete.
  void set_networks(std::vector<RankTrace>& traces) const {
    std::map<std::string, std::set<const RankTrace*>> ranks;
    for (const RankTrace& trace : traces)
      for (const TimedKernel& kernel : trace.kernels)
        if (kernel.comm) ranks[kernel.comm->group].insert(&trace);
    bool all_whole = true;
    for (RankTrace& trace : traces)
      for (TimedKernel& kernel : trace.kernels) {
        if (!kernel.comm) continue;
        const auto& members = ranks.at(kernel.comm->group);
        const auto host = [](const RankTrace* rank) { return rank->host; };
        const bool is_whole = !kernel.comm->group.empty() && std::ssize(members) == kernel.comm->group_size &&
                              std::ranges::none_of(members, &std::string::empty, host);
        all_whole &= is_whole;
        if (!is_whole) continue;
        const bool inside =
            std::ranges::all_of(members, [&](const RankTrace* rank) { return rank->host == trace.host; });
        kernel.comm->network = inside ? "intra" : "inter";
      }
    if (all_whole) return;
    for (RankTrace& trace : traces) trace.host.clear();
  }

  const ImportOptions& options_;
  std::vector<NsysExport> exports_;
  std::map<uint64_t, int> ranks_;  // by communicator
  std::set<std::tuple<std::string, int64_t, int64_t>> seen_;
  ptrdiff_t untyped_ = 0;  // GEMMs of an unknown type
};

}  // namespace

void import_nsys(const ImportOptions& options) {
  NsysImport nsys(options);
  import_traces(options,
                {"ranges of NCCL 2.19 or later with their payloads (nsys profile --trace cuda,nvtx)",
                 "ranges of NCCL, or of operators with sizes (torch.autograd.profiler.emit_nvtx(record_shapes=True))"},
                [&](const AddTrace& add) {
                  for (const RankTrace& trace : nsys.traces()) add(trace);
                });
}

}  // namespace moe::exchange
