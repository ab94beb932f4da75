// What nccl-tests prints, and its JSON (-J). Sizes are as here: of an allgather what is gathered, of an alltoall the
// whole buffer, one's own part included.
#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fmt/ranges.h>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "exchange/formats.h"
#include "exchange/imported_samples.h"
#include "moe/base/check.h"
#include "moe/base/log.h"
#include "moe/base/system_files.h"

namespace moe::exchange {
namespace {

struct TestProgram {
  std::string_view name;
  Op op;
};
constexpr std::array<TestProgram, 5> kPrograms{{{"all_reduce", Op::allreduce},
                                                {"all_gather", Op::allgather},
                                                {"reduce_scatter", Op::reducescatter},
                                                {"alltoall", Op::alltoall},
                                                {"sendrecv", Op::sendrecv}}};

struct TestRow {
  double bytes = 0, seconds = 0;
};

// One file: who took part, and what was timed.
struct TestOutput {
  std::string path, program;
  std::map<std::string, std::vector<std::string>> hosts;  // by group: of each of its ranks
  std::vector<TestRow> rows;
  int wrong = 0, without_time = 0;
};

// The number that is all of a word; none: it isn't one.
std::optional<double> number_of_word(const std::string& word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

void add_row(double bytes, double microseconds, double wrong, TestOutput& out) {
  if (wrong > 0)
    ++out.wrong;
  else if (bytes <= 0 || !(microseconds > 0))
    ++out.without_time;
  else
    out.rows.push_back({bytes, microseconds * 1e-6});
}

// "#  Rank  0 Group  0 Pid  41 on node-1 device  0 [0000:07:00] ...", before groups were printed without them.
void read_rank(const std::vector<std::string>& words, TestOutput& out) {
  const auto behind = [&](std::string_view word) {
    const auto at = std::ranges::find(words, word);
    return at == words.end() || at + 1 == words.end() ? std::string() : *(at + 1);
  };
  if (const std::string host = behind("on"); !host.empty()) out.hosts[behind("Group")].push_back(host);
}

// Columns stand on the right; older programs leave out what has no meaning for an operation.
void read_row(const std::vector<std::string>& head, std::vector<std::string> words, bool in_place, TestOutput& out) {
  if (head.back() == "timestamp" && words.size() > 2) words.resize(words.size() - 2);
  const size_t columns = head.back() == "timestamp" ? head.size() - 1 : head.size();
  std::vector<size_t> times;
  for (size_t i = 0; i < columns; ++i)
    if (head[i] == "time" || head[i] == "cputime") times.push_back(i);
  const size_t wanted = in_place ? 1 : 0;
  if (times.size() <= wanted) return;
  const size_t behind = columns - times[wanted];
  if (behind < 4 || words.size() < behind + 3) return;  // size, count and type stand before
  const size_t at = words.size() - behind;
  const auto bytes = number_of_word(words.front()), microseconds = number_of_word(words[at]);
  if (!bytes || !microseconds) return;
  add_row(*bytes, *microseconds, number_of_word(words[at + 3]).value_or(0), out);
}

void read_text(std::istream& in, bool in_place, TestOutput& out) {
  std::vector<std::string> head;
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> words = words_in(line);
    if (words.empty()) continue;
    if (words.front().front() != '#') {
      if (!head.empty() && number_of_word(words.front())) read_row(head, words, in_place, out);
      continue;
    }
    if (words.size() > 2 && words[1] == "size" && words[2] == "count") head.assign(words.begin() + 1, words.end());
    if (words.size() > 1 && words[1] == "Rank") read_rank(words, out);
    constexpr std::string_view kStarting = "starting:";
    if (const auto at = std::ranges::find(words, kStarting); at != words.end() && at + 1 != words.end())
      out.program = *(at + 1);
  }
}

double number_in(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : 0;
}

void read_json(const nlohmann::json& json, bool in_place, TestOutput& out) {
  if (json.contains("args") && json["args"].is_array() && !json["args"].empty() && json["args"][0].is_string())
    out.program = json["args"][0].get<std::string>();
  const nlohmann::json config = json.value("config", nlohmann::json::object());
  for (const nlohmann::json& device : config.value("devices", nlohmann::json::array()))
    out.hosts[fmt::format("{:.0f}", number_in(device, "group"))].push_back(device.value("hostname", "?"));
  // Without MPI the first device stands for all of the process.
  const auto here = static_cast<size_t>(std::max(1.0, number_in(config, "nthreads") * number_in(config, "ngpus")));
  if (out.hosts.size() == 1)
    for (auto& [group, hosts] : out.hosts)
      if (hosts.size() == 1 && here > 1) hosts.resize(here, hosts.front());
  for (const nlohmann::json& row : json.value("results", nlohmann::json::array())) {
    const nlohmann::json timed = row.value(in_place ? "in_place" : "out_of_place", nlohmann::json());
    if (!timed.is_object()) continue;
    const double time = timed.contains("time") ? number_in(timed, "time") : number_in(timed, "cpu_time");
    add_row(number_in(row, "size"), time, number_in(timed, "nwrong"), out);
  }
}

TestOutput read_output(const std::string& path, bool in_place) {
  std::ifstream in(path, std::ios::binary);
  require<BadInput>(in.is_open() && !std::filesystem::is_directory(path),
                    "{}: found no readable file, expected what nccl-tests printed", path);
  TestOutput out;
  out.path = path;
  if (begins_with_object(path)) {
    const nlohmann::json json = nlohmann::json::parse(in, nullptr, false);
    require<BadInput>(json.is_object(), "{}: found bad syntax, expected nccl-tests' JSON", path);
    read_json(json, in_place, out);
  } else {
    read_text(in, in_place, out);
  }
  require<BadInput>(!out.rows.empty(),
                    "{}: found no {} time, expected a table of size, count, type, ..., as nccl-tests prints it", path,
                    in_place ? "in-place" : "out-of-place");
  return out;
}

// By --op, else by the program's name, else by the file's.
Op op_of_output(const TestOutput& out, const ImportOptions& options) {
  if (!options.op.empty()) {
    const auto op = find_op(options.op);
    const bool known = op && std::ranges::find(kPrograms, *op, &TestProgram::op) != kPrograms.end();
    require<BadInput>(known,
                      "--op: found '{}', expected one of: alltoall, allgather, reducescatter, allreduce, sendrecv",
                      options.op);
    return *op;
  }
  const std::string file = std::filesystem::path(out.path).filename();
  for (const std::string& name : {std::filesystem::path(out.program).filename().string(), file})
    for (const TestProgram& program : kPrograms)
      if (name.starts_with(program.name)) return program.op;
  bad_input("--op: found none, and {} is of {}; expected what it times", out.path,
            out.program.empty() ? "an unnamed program" : "'" + out.program + "'");
}

struct TestGroup {
  int ranks = 0;
  std::string network;
  ClusterSize size;
};

// As the devices say, else by flags.
TestGroup group_of_output(const TestOutput& out, const ImportOptions& options) {
  TestGroup group;
  std::map<std::string, int> on_host;
  size_t hosts_of_group = 0;
  for (const auto& [name, hosts] : out.hosts) {
    group.ranks = std::max(group.ranks, static_cast<int>(hosts.size()));
    hosts_of_group = std::max(hosts_of_group, std::set(hosts.begin(), hosts.end()).size());
    for (const std::string& host : hosts) ++on_host[host];
  }
  for (const auto& [host, ranks] : on_host) group.size.ranks_per_node = std::max(group.size.ranks_per_node, ranks);
  group.size.nodes = static_cast<int>(on_host.size());
  group.ranks = options.ranks.value_or(group.ranks);
  require<BadInput>(group.ranks >= 2, "--ranks: found {} in {}, expected at least 2 ranks of a group",
                    group.ranks == 0 ? "no device" : "one device", out.path);
  if (!options.network.empty())
    group.network = options.network;
  else if (hosts_of_group > 0)
    group.network = hosts_of_group > 1 ? "inter" : "intra";
  else
    group.network = network_asked(options, out.path);
  return group;
}

}  // namespace

void import_nccl_tests(const ImportOptions& options) {
  ImportedSamples samples("nccl");
  for (const std::string& path : options.files) {
    const TestOutput out = read_output(path, options.in_place);
    const Op op = op_of_output(out, options);
    const TestGroup group = group_of_output(out, options);
    for (const TestRow& row : out.rows)
      samples.add(
          {.op = op, .network = group.network, .ranks = group.ranks, .bytes = row.bytes, .seconds = row.seconds});
    samples.see(group.size);
    log_info(fmt::format("{}: {} over {} ranks, {}, {} sizes; left out: {} with wrong results, {} without a time", path,
                         name_of(op), group.ranks, group.network, out.rows.size(), out.wrong, out.without_time));
  }
  samples.write(options);
}

}  // namespace moe::exchange
