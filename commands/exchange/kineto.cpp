// Traces of PyTorch's profiler: Chrome traces written by Kineto.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "commands/exchange/formats.h"
#include "commands/exchange/json_fields.h"
#include "commands/exchange/trace.h"
#include "moe/base/check.h"
#include "moe/base/files.h"
#include "moe/base/json.h"

namespace moe::exchange {
namespace {

using Json = nlohmann::json;

// Reads a list, or its text "[0, 1, 2]". Some traces truncate the text with dots; such a list is unknown.
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

// Returns the number of ranks; 0 (unknown) if the value is no valid number.
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

// Chrome allows a list of events without its end, because a traced program may be killed.
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
  explicit EventReader(RankTrace& trace) : trace_(trace) {}

  void read(const Json& event) {
    if (text_at(event, "ph") != "X" || !event.contains("name")) return;
    const std::string category = text_at(event, "cat");
    const Json args = object_at(event, "args");
    if (category == "kernel") trace_.kernels.push_back(timed(event, args));
    if (category == "cpu_op" || category == "user_annotation") operation(event, args);
  }

  // If the trace has no kernels, uses the times of the operations. `groups`: the process groups that the trace lists.
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

  // Reads Gloo's arguments, which only give the input sizes, not the group.
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

  RankTrace& trace_;
  std::vector<TimedKernel> on_cpu_;
};

// Reads a trace, which may be compressed with gzip. Throws BadInput naming the file.
RankTrace read_kineto(const std::string& path) {
  RankTrace trace;
  trace.path = path;
  EventReader reader(trace);
  bool events = false;
  // Each event is read and then dropped, because traces are large.
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

}  // namespace

void import_kineto(const ImportOptions& options) {
  import_traces(options,
                {"\"Collective name\", \"In msg nelems\", \"Group size\" and \"dtype\", which the profiler of PyTorch "
                 "2.3 and later writes",
                 "a trace with record_shapes=True"},
                [&](const AddTrace& add) {
                  for (const std::string& path : options.files) add(read_kineto(path));
                });
}

}  // namespace moe::exchange
