// What nccl-tests prints, and its JSON (-J). Sizes are as here: of an allgather what is gathered, of an alltoall the
// whole buffer, one's own part included.
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "exchange/formats.h"
#include "exchange/imported_samples.h"
#include "exchange/json_fields.h"
#include "moe/base/check.h"
#include "moe/base/file_text.h"
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

constexpr double kMostRanksOfProcess = 4096;

struct TestRow {
  double bytes = 0, seconds = 0;
};

// Holds what one program printed: who took part, and what was timed.
struct TestOutput {
  std::string path, program;
  std::map<std::string, std::vector<std::string>> hosts;  // by group: of each of its ranks
  std::vector<TestRow> rows;
  int wrong = 0, without_time = 0, unreadable = 0;

  bool empty() const { return hosts.empty() && rows.empty() && wrong + without_time + unreadable == 0; }
};

// Returns the number that a word is as a whole; none: it isn't one.
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

// Reads "#  Rank  0 Group  0 Pid  41 on node-1 device  0 [0000:07:00] ...", before groups were printed without them.
void read_rank(const std::vector<std::string>& words, TestOutput& out) {
  const auto behind = [&](std::string_view word) {
    const auto at = std::ranges::find(words, word);
    return at == words.end() || at + 1 == words.end() ? std::string() : *(at + 1);
  };
  if (const std::string host = behind("on"); !host.empty()) out.hosts[behind("Group")].push_back(host);
}

// Says where times, bandwidths and counts of wrong results stand, counted from the right.
struct TimeColumns {
  size_t time = 0, bandwidth = 0, wrong = 0;  // 0: there is none
};

TimeColumns columns_of(const std::vector<std::string>& head, bool in_place) {
  std::vector<size_t> times;
  for (size_t i = 0; i < head.size(); ++i)
    if (head[i] == "time" || head[i] == "cputime") times.push_back(i);
  const size_t wanted = in_place ? 1 : 0;
  if (times.size() <= wanted) return {};
  const size_t at = times[wanted];
  const auto is = [&](size_t i, std::string_view name) { return i < head.size() && head[i] == name; };
  return {head.size() - at, is(at + 1, "algbw") ? head.size() - at - 1 : 0,
          is(at + 3, "#wrong") ? head.size() - at - 3 : 0};
}

// Returns whether a number can be that bandwidth: it is printed with two digits behind the point, or as many as fit,
// and so is the time.
bool is_bandwidth(double printed, double bytes, double microseconds) {
  const double expected = bytes / microseconds / 1e3;
  return std::abs(printed - expected) <= 0.011 + 0.01 * expected;
}

// Redop and root are left out by older programs where they have no meaning: other words lack or are too many where a
// line is torn, or another's text stands in it.
void read_row(std::vector<std::string> head, std::vector<std::string> words, bool in_place, TestOutput& out) {
  if (head.back() == "timestamp") {  // a day and an hour
    head.pop_back();
    words.resize(words.size() - std::min<size_t>(words.size(), 2));
  }
  const TimeColumns columns = columns_of(head, in_place);
  if (columns.time == 0) return;
  const auto optional = std::ranges::count_if(head, [](const auto& name) { return name == "redop" || name == "root"; });
  const auto word = [&](size_t from_right) { return words[words.size() - from_right]; };
  const bool whole = words.size() <= head.size() && words.size() + static_cast<size_t>(optional) >= head.size();
  const auto bytes = whole ? number_of_word(words.front()) : std::nullopt;
  if (bytes && word(columns.time) == "N/A") return add_row(*bytes, 0, 0, out);
  const auto microseconds = bytes ? number_of_word(word(columns.time)) : std::nullopt;
  const auto bandwidth = bytes && columns.bandwidth > 0 ? number_of_word(word(columns.bandwidth)) : std::nullopt;
  const bool timed = microseconds && *microseconds > 0;
  if (!microseconds || (columns.bandwidth > 0 && !bandwidth) ||
      (bandwidth && timed && !is_bandwidth(*bandwidth, *bytes, *microseconds))) {
    ++out.unreadable;
    return;
  }
  add_row(*bytes, *microseconds, columns.wrong > 0 ? number_of_word(word(columns.wrong)).value_or(0) : 0, out);
}

// A log may have several programs', one behind the other.
std::vector<TestOutput> read_text(std::istream& in, bool in_place) {
  std::vector<TestOutput> outputs(1);
  std::vector<std::string> head;
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> words = words_in(line);
    if (words.empty()) continue;
    if (words.front().front() != '#') {
      if (!head.empty() && number_of_word(words.front())) read_row(head, words, in_place, outputs.back());
      continue;
    }
    if (words.size() > 2 && words[1] == "size" && words[2] == "count") head.assign(words.begin() + 1, words.end());
    const auto starting = std::ranges::find(words, "starting:");
    const bool named = starting != words.end() && starting + 1 != words.end();
    const bool devices = words.size() > 2 && words[1] == "Using" && words[2] == "devices";
    if ((named || devices) && !outputs.back().empty()) outputs.emplace_back(), head.clear();
    if (named) outputs.back().program = *(starting + 1);
    if (words.size() > 1 && words[1] == "Rank") read_rank(words, outputs.back());
  }
  return outputs;
}

// Adds the host of every rank. Where no process lists two devices, each lists its first alone, for all its ranks.
void read_devices(const nlohmann::json& config, TestOutput& out) {
  const double here = std::max(1.0, number_at(config, "nthreads")) * std::max(1.0, number_at(config, "ngpus"));
  require<BadInput>(here <= kMostRanksOfProcess, "{}: config: found {} threads x GPUs, expected at most {}", out.path,
                    here, kMostRanksOfProcess);
  const nlohmann::json devices = list_at(config, "devices");
  std::set<std::string> processes;
  for (const nlohmann::json& device : devices) {
    require<BadInput>(!text_at(device, "hostname").empty(),
                      "{}: config.devices: found one without a hostname, expected the device's", out.path);
    processes.insert(fmt::format("{} {}", text_at(device, "hostname"), number_at(device, "pid")));
  }
  const size_t ranks = processes.size() == devices.size() ? static_cast<size_t>(here) : 1;
  for (const nlohmann::json& device : devices) {
    auto& hosts = out.hosts[fmt::format("{:.0f}", number_at(device, "group"))];
    hosts.insert(hosts.end(), ranks, text_at(device, "hostname"));
  }
}

TestOutput read_json(const nlohmann::json& json, const std::string& path, bool in_place) {
  TestOutput out;
  out.path = path;
  const nlohmann::json words = list_at(json, "args");
  if (!words.empty() && words[0].is_string()) out.program = words[0].get<std::string>();
  read_devices(object_at(json, "config"), out);
  for (const nlohmann::json& row : list_at(json, "results")) {
    const nlohmann::json timed = object_at(row, in_place ? "in_place" : "out_of_place");
    const double time = timed.contains("time") ? number_at(timed, "time") : number_at(timed, "cpu_time");
    add_row(number_at(row, "size"), time, number_at(timed, "nwrong"), out);
  }
  return out;
}

std::vector<TestOutput> read_outputs(const std::string& path, bool in_place) {
  const std::string text = text_of_file(path, "what nccl-tests printed");
  std::vector<TestOutput> outputs;
  if (const size_t first = text.find_first_not_of(" \t\r\n"); first != std::string::npos && text[first] == '{') {
    const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
    require<BadInput>(json.is_object(), "{}: found bad syntax, expected nccl-tests' JSON", path);
    outputs.push_back(read_json(json, path, in_place));
  } else {
    std::istringstream in(text);
    outputs = read_text(in, in_place);
  }
  const auto untimed = [](const TestOutput& out) { return out.rows.empty(); };
  require<BadInput>(!std::ranges::all_of(outputs, untimed),
                    "{}: found no {} time, expected a table of size, count, type, ..., as nccl-tests prints it", path,
                    in_place ? "in-place" : "out-of-place");
  for (const TestOutput& out : outputs)
    if (untimed(out))
      log_info(fmt::format("{}: {} is left out: {} rows with wrong results, {} without a time, {} unreadable", path,
                           out.program.empty() ? "an unnamed program" : out.program, out.wrong, out.without_time,
                           out.unreadable));
  std::erase_if(outputs, untimed);
  for (TestOutput& out : outputs) out.path = path;
  return outputs;
}

// Returns whether the program's or the file's name is the test's: all_reduce_perf, all_reduce.txt, but no
// alltoallv_perf.
bool is_named(const std::string& file, std::string_view test) {
  const bool begins = file.starts_with(test);
  return begins && (file.size() == test.size() || std::isalpha(static_cast<unsigned char>(file[test.size()])) == 0);
}

// Returns the op that --op names, else the program's name, else the file's.
Op op_of_output(const TestOutput& out, const ImportOptions& options) {
  if (!options.op.empty()) {
    const auto op = find_op(options.op);
    const bool known = op && std::ranges::find(kPrograms, *op, &TestProgram::op) != kPrograms.end();
    require<BadInput>(known,
                      "--op: found '{}', expected one of: alltoall, allgather, reducescatter, allreduce, sendrecv",
                      options.op);
    return *op;
  }
  const std::string name = std::filesystem::path(out.program.empty() ? out.path : out.program).filename();
  for (const TestProgram& program : kPrograms)
    if (is_named(name, program.name)) return program.op;
  bad_input("--op: found none, and {} is of {}; expected what it times", out.path,
            out.program.empty() ? "an unnamed program" : "'" + out.program + "'");
}

struct TestGroup {
  int ranks = 0;
  std::string network;
  ClusterSize size;
};

// Returns the group as flags say, else as the devices do.
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

// A pair sends and receives, whatever ranks do so beside it.
void add_output(const TestOutput& out, const ImportOptions& options, ImportedSamples& samples) {
  const Op op = op_of_output(out, options);
  const TestGroup group = group_of_output(out, options);
  const int ranks = op == Op::sendrecv ? 2 : group.ranks;
  for (const TestRow& row : out.rows)
    samples.add({.op = op, .network = group.network, .ranks = ranks, .bytes = row.bytes, .seconds = row.seconds});
  samples.see(group.size);
  log_info(fmt::format(
      "{}: {} over {} ranks, {}, {} sizes; left out: {} with wrong results, {} without a time, {} unreadable", out.path,
      name_of(op), group.ranks, group.network, out.rows.size(), out.wrong, out.without_time, out.unreadable));
}

}  // namespace

void import_nccl_tests(const ImportOptions& options) {
  ImportedSamples samples("nccl");
  for (const std::string& path : options.files)
    for (const TestOutput& out : read_outputs(path, options.in_place)) add_output(out, options, samples);
  samples.write(options);
}

}  // namespace moe::exchange
