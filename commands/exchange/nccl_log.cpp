#include "commands/exchange/nccl_log.h"

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
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include "commands/exchange/formats.h"
#include "commands/exchange/import.h"
#include "commands/exchange/json_fields.h"
#include "moe/base/check.h"
#include "moe/base/files.h"
#include "moe/base/json.h"
#include "moe/base/log.h"
#include "moe/base/registry.h"
#include "moe/base/system_files.h"

namespace moe::exchange {
namespace {

using Words = std::vector<std::string>;

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_alnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// Returns the number that a whole word spells; none if it is no number.
std::optional<double> number_of_word(const std::string& word) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

// Returns the line without the escape sequences of terminals: ESC [ ... letter, and ESC ] ... BEL.
std::string without_escapes(const std::string& line) {
  std::string text;
  for (size_t at = 0; at < line.size(); ++at) {
    if (line[at] != '\x1b') {
      text += line[at];
      continue;
    }
    const char kind = at + 1 < line.size() ? line[at + 1] : '\0';
    const auto ends = [&](char c) { return kind == ']' ? c == '\a' : c >= '@' && c <= '~'; };
    ++at;
    if (kind != '[' && kind != ']') continue;
    for (++at; at < line.size() && !ends(line[at]);) ++at;
  }
  return text;
}

// Matches `pattern` at the beginning of `text`: '0' is a digit, 'A' a letter, '_' one or more blanks, and other
// characters match themselves. Returns the number of characters matched, 0 if it does not match.
size_t match(std::string_view text, std::string_view pattern) {
  size_t at = 0;
  for (const char p : pattern) {
    const char c = at < text.size() ? text[at] : '\0';
    const bool fits = p == '0' ? is_digit(c) : p == 'A' ? is_alnum(c) && !is_digit(c) : p == '_' ? c == ' ' : c == p;
    if (!fits) return 0;
    ++at;
    while (p == '_' && at < text.size() && text[at] == ' ') ++at;
  }
  return at;
}

size_t match_any(std::string_view text, std::span<const std::string_view> patterns) {
  for (const std::string_view pattern : patterns)
    if (const size_t length = match(text, pattern); length > 0) return length;
  return 0;
}

// Returns the length of the timestamp at the beginning of a text: a time with an optional date before it, and with
// optional fractions of a second and time zone after it. 0 if there is none.
size_t timestamp_length(std::string_view text) {
  constexpr std::array<std::string_view, 2> kDays{"AAA_AAA_00_", "AAA_AAA_0_"};
  constexpr std::array<std::string_view, 7> kDates{"0000-00-00T", "0000-00-00_", "0000/00/00_", "AAA_00_",
                                                   "AAA_0_",      "00/00/0000_", "00-00-0000_"};
  constexpr std::array<std::string_view, 6> kZones{"Z", "+00:00", "-00:00", "+0000", "-0000", "_UTC"};
  constexpr std::array<std::string_view, 2> kYears{"_AAA_0000", "_0000"};
  size_t at = match_any(text, kDays);
  const bool has_year = at > 0;  // in the format of ctime and date, which put the year after the time
  if (!has_year) at = match_any(text, kDates);
  const size_t time = match(text.substr(at), "00:00:00");
  if (time == 0) return 0;
  at += time;
  if (at < text.size() && (text[at] == '.' || text[at] == ','))
    for (++at; at < text.size() && is_digit(text[at]);) ++at;
  if (has_year)
    at += match_any(text.substr(at), kYears);
  else
    at += match_any(text.substr(at), kZones);
  return at < text.size() && is_alnum(text[at]) ? 0 : at;
}

// Returns the index of the '#' that begins a line of nccl-tests, after any prefix of a launcher.
size_t marker(std::string_view line) {
  constexpr std::array<std::string_view, 9> kOwn{
      "Using devices", "Rank", "size", "Collective test ", "nThread", "Out of bounds", "Avg bus", "nccl-tests", "..."};
  for (size_t at = line.find('#'); at != std::string_view::npos; at = line.find('#', at + 1)) {
    const std::string_view text = trimmed(line.substr(at + 1));
    if (std::ranges::any_of(kOwn, [&](auto own) { return text.starts_with(own); })) return at;
  }
  return std::string_view::npos;
}

constexpr double kMaxListedRanks = 1 << 20;

// Reads "#  Rank  0 Group  0 Pid  41 on node-1 device  0 [0000:07:00] ..."; older versions print no group.
void read_rank(const Words& words, TestOutput& out) {
  const auto behind = [&](std::string_view word) {
    const auto at = std::ranges::find(words, word);
    return at == words.end() || at + 1 == words.end() ? std::string() : *(at + 1);
  };
  const auto number = number_of_word(behind("Rank"));
  if (const std::string host = behind("on"); !host.empty())
    out.ranks.push_back(
        {number ? static_cast<int>(std::clamp(*number, -1.0, kMaxListedRanks)) : -1, behind("Group"), host});
}

// The columns of one half of the table (out of place or in place), counted from the right; 0: missing.
struct Columns {
  size_t time = 0, algbw = 0, busbw = 0;
  size_t wrong = 0;  // number of wrong results
  size_t error = 0;  // largest error, in versions that do not count wrong results
};

Columns columns_of(const Words& head, bool in_place) {
  std::vector<size_t> times;
  for (size_t i = 0; i < head.size(); ++i)
    if (head[i] == "time" || head[i] == "cputime") times.push_back(i);
  const size_t wanted = in_place ? 1 : 0;
  if (times.size() <= wanted) return {};
  const size_t at = times[wanted];
  const auto place = [&](size_t i, std::string_view name) {
    return i < head.size() && head[i] == name ? head.size() - i : 0;
  };
  return {head.size() - at, place(at + 1, "algbw"), place(at + 2, "busbw"), place(at + 3, "#wrong"),
          place(at + 3, "error")};
}

// Returns the largest error that versions without counts accept for a type.
double error_limit(std::string_view type) {
  if (type == "half" || type == "bfloat16") return 1e-2;
  if (type == "float") return 1e-5;
  return type == "double" ? 1e-12 : 0;
}

// Returns whether a printed number can be this bandwidth. Both it and the time are printed with two decimals, or as
// many as fit.
bool is_bandwidth(double printed, double bytes, double microseconds) {
  const double expected = bytes / microseconds / 1e3;
  return std::abs(printed - expected) <= 0.011 + 0.01 * expected;
}

// A row of the table, read with the table's header.
class RowReader {
 public:
  RowReader(Words head, Words words) : head_(std::move(head)), words_(std::move(words)) {
    if (head_.back() != "timestamp") return;  // two words: a date and a time
    head_.pop_back();
    words_.resize(words_.size() - std::min<size_t>(words_.size(), 2));
  }

  // Older versions omit redop and root if they have no meaning. Any other difference in the number of words means that
  // the line is torn or mixed with another one.
  bool is_whole() const {
    const auto optional = std::ranges::count_if(head_, [](const auto& n) { return n == "redop" || n == "root"; });
    return words_.size() <= head_.size() && words_.size() + static_cast<size_t>(optional) >= head_.size();
  }

  void read(bool in_place, TestOutput& out) const {
    const Columns columns = columns_of(head_, in_place);
    if (columns.time == 0) return;
    const auto bytes = is_whole() ? number_of_word(words_.front()) : std::nullopt;
    const auto microseconds = bytes ? number_at(columns.time) : std::nullopt;
    if (bytes && word(columns.time) == "N/A") return add_test_row({.bytes = *bytes}, 0, out);
    const auto algbw = bytes ? number_at(columns.algbw) : std::nullopt;
    const bool timed = microseconds && *microseconds > 0;
    if (!microseconds || (columns.algbw > 0 && !algbw) ||
        (algbw && timed && !is_bandwidth(*algbw, *bytes, *microseconds))) {
      ++out.unreadable;
      return;
    }
    const auto busbw = number_at(columns.busbw);
    const double wrong = wrong_results(columns);
    out.wrong_results +=
        static_cast<int>(wrong > 0) + static_cast<int>(wrong_results(columns_of(head_, !in_place)) > 0);
    add_test_row({*bytes, *microseconds * 1e-6, busbw ? algbw.value_or(0) : 0, busbw.value_or(0)}, wrong, out);
  }

 private:
  const std::string& word(size_t from_right) const { return words_[words_.size() - from_right]; }
  std::optional<double> number_at(size_t from_right) const {
    return from_right == 0 || from_right > words_.size() ? std::nullopt : number_of_word(word(from_right));
  }
  double wrong_results(const Columns& columns) const {
    if (columns.wrong > 0) return number_at(columns.wrong).value_or(0);
    const std::string type = words_.size() > 2 ? words_[2] : "";
    const auto error = number_at(columns.error);
    return error && !(*error <= error_limit(type)) ? 1 : 0;
  }

  Words head_, words_;
};

// The lines with one prefix.
class Stream {
 public:
  explicit Stream(bool in_place) : in_place_(in_place) {}

  bool has_head() const { return !head_.empty(); }

  void read_row(const Words& words) {
    if (has_head() && !words.empty() && number_of_word(words.front()))
      RowReader(head_, words).read(in_place_, outputs.back());
  }

  // Reads the words after the '#' of a line.
  void read_own(const Words& words) {
    const auto is = [&](size_t i, std::string_view word) { return i < words.size() && words[i] == word; };
    const bool starting = is(2, "starting:") && words.size() > 3, rank = is(0, "Rank");
    const bool header = starting || is(0, "nccl-tests") || is(0, "nThread") || is(0, "Using");
    // Programs that start side by side print their lists mixed, so only rows end a list.
    if ((header && !outputs.back().empty()) || (rank && has_rows())) begin();
    if (starting) outputs.back().program = words[3];
    if (rank) read_rank(words, outputs.back());
    if (is(0, "size") && is(1, "count")) head_ = words;
    if (is(0, "Out") && is(2, "bounds")) outputs.back().has_failed |= words.back() == "FAILED";
  }

  std::vector<TestOutput> outputs{1};

 private:
  bool has_rows() const {
    const TestOutput& last = outputs.back();
    return !last.rows.empty() || last.wrong + last.without_time + last.unreadable > 0;
  }
  void begin() {
    outputs.emplace_back();
    head_.clear();
  }

  bool in_place_;
  Words head_;
};

}  // namespace

std::string strip_log_decoration(const std::string& line) {
  std::string text = line.find('\x1b') == std::string::npos ? line : without_escapes(line);
  if (text.find(':') == std::string::npos) return text;
  const size_t end = text.find_last_not_of(" \t\r") + 1;
  for (size_t at = 0; at < end; ++at) {
    if (at > 0 && is_alnum(text[at - 1])) continue;
    const size_t length = timestamp_length(std::string_view(text).substr(at));
    if (length == 0) continue;
    if (at + length >= end) break;  // a column of the table, not a prefix
    return text.erase(at, length);
  }
  return text;
}

void add_test_row(const TestRow& row, double wrong, TestOutput& out) {
  if (wrong > 0)
    ++out.wrong;
  else if (row.bytes <= 0 || !(row.seconds > 0))
    ++out.without_time;
  else
    out.rows.push_back(row);
}

std::vector<TestOutput> read_nccl_log(std::istream& in, bool in_place) {
  std::map<std::string, Stream, std::greater<>> streams;  // by prefix; longer prefixes come before shorter ones
  std::vector<Stream*> in_order;
  for (std::string raw; std::getline(in, raw);) {
    const std::string line = strip_log_decoration(raw);
    if (const size_t at = marker(line); at != std::string::npos) {
      const auto [stream, is_new] =
          streams.try_emplace(std::string(trimmed(std::string_view(line).substr(0, at))), in_place);
      if (is_new) in_order.push_back(&stream->second);
      stream->second.read_own(words_in(std::string_view(line).substr(at + 1)));
      continue;
    }
    const std::string_view text = trimmed(line);
    const auto source =
        std::ranges::find_if(streams, [&](const auto& s) { return s.second.has_head() && text.starts_with(s.first); });
    if (source != streams.end()) source->second.read_row(words_in(text.substr(source->first.size())));
  }
  std::vector<TestOutput> outputs;
  for (Stream* stream : in_order)
    std::ranges::copy_if(stream->outputs, std::back_inserter(outputs), [](const auto& out) { return !out.empty(); });
  return outputs;
}

// The output of nccl-tests, and its JSON (-J). Sizes are as in moetune: for an allgather the gathered size, for an
// alltoall the whole buffer, including the rank's own part.

namespace {

constexpr std::array<Named<Op>, 11> kPrograms{{{"all_reduce", Op::allreduce},
                                               {"all_gather", Op::allgather},
                                               {"reduce_scatter", Op::reducescatter},
                                               {"alltoall", Op::alltoall},
                                               {"sendrecv", Op::sendrecv},
                                               {"alltoallv", Op::none},
                                               {"broadcast", Op::none},
                                               {"reduce", Op::none},
                                               {"gather", Op::none},
                                               {"scatter", Op::none},
                                               {"hypercube", Op::none}}};

constexpr double kMaxRanksOfProcess = 4096;

// Adds all ranks. If no process lists two devices, each lists only its first one, for all its ranks.
void read_devices(const nlohmann::json& config, TestOutput& out) {
  const double here = std::max(1.0, number_at(config, "nthreads")) * std::max(1.0, number_at(config, "ngpus"));
  require<BadInput>(here <= kMaxRanksOfProcess, "{}: config: found {} threads x GPUs, expected at most {}", out.path,
                    here, kMaxRanksOfProcess);
  const nlohmann::json devices = list_at(config, "devices");
  std::set<std::string> processes;
  for (const nlohmann::json& device : devices) {
    require<BadInput>(!text_at(device, "hostname").empty(),
                      "{}: config.devices: found one without a hostname, expected the device's", out.path);
    processes.insert(fmt::format("{} {}", text_at(device, "hostname"), number_at(device, "pid")));
  }
  const size_t ranks = processes.size() == devices.size() ? static_cast<size_t>(here) : 1;
  for (const nlohmann::json& device : devices) {
    const int64_t first = whole_at(device, "rank", -1);
    for (size_t i = 0; i < ranks; ++i)
      out.ranks.push_back({std::in_range<int>(first) && first >= 0 ? static_cast<int>(first + i) : -1,
                           fmt::format("{:.0f}", number_at(device, "group")), text_at(device, "hostname")});
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
    add_test_row({number_at(row, "size"), time * 1e-6, timed.contains("bus_bw") ? number_at(timed, "alg_bw") : 0,
                  number_at(timed, "bus_bw")},
                 number_at(timed, "nwrong"), out);
  }
  return out;
}

std::vector<TestOutput> read_outputs(const std::string& path, bool in_place) {
  std::string text = text_of_file(path, "what nccl-tests printed");
  std::vector<TestOutput> outputs;
  if (const size_t first = text.find_first_not_of(" \t\r\n"); first != std::string::npos && text[first] == '{') {
    repair_json_strings(text);
    const auto json = json_from<nlohmann::json>(text, path, "nccl-tests' JSON");
    outputs.push_back(read_json(json, path, in_place));
  } else {
    std::istringstream in(text);
    outputs = read_nccl_log(in, in_place);
  }
  for (TestOutput& out : outputs) out.path = path;
  return outputs;
}

// Returns whether the name of a program or file belongs to the test: all_reduce_perf, all_reduce.txt, but not
// alltoallv_perf.
bool is_named(const std::string& file, std::string_view test) {
  const bool begins = file.starts_with(test);
  return begins && (file.size() == test.size() || std::isalpha(static_cast<unsigned char>(file[test.size()])) == 0);
}

// Returns the program of nccl-tests to which the name of a program or file belongs; kPrograms.end() if there is none.
auto find_program(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename();
  return std::ranges::find_if(kPrograms, [&](const Named<Op>& program) { return is_named(name, program.name); });
}

std::string program_name(const TestOutput& out) {
  return out.program.empty() ? "an unnamed program" : "'" + out.program + "'";
}

Op checked_op(const std::string& name) {
  const auto op = find_op(name);
  const bool known = op && *op != Op::none && std::ranges::find(kPrograms, *op, &Named<Op>::value) != kPrograms.end();
  require<BadInput>(known, "--op: found '{}', expected one of: alltoall, allgather, reducescatter, allreduce, sendrecv",
                    name);
  return *op;
}

// Returns the op of the program's name; for other programs the op of --op, or if none is given of the file's name.
Op op_of_output(const TestOutput& out, const ImportOptions& options) {
  const auto* program = find_program(out.program);
  if (program == kPrograms.end() && !options.op.empty()) return checked_op(options.op);
  if (program == kPrograms.end() && out.program.empty()) program = find_program(out.path);
  if (program == kPrograms.end())
    bad_input("--op: found none, and {} is of {}; expected what it times", out.path, program_name(out));
  if (program->value == Op::none)
    bad_input("{}: found the output of {}, expected one of an operation that layers have: {}", out.path,
              out.program.empty() ? fmt::format("{}_perf", program->name) : out.program,
              "all_reduce, all_gather, reduce_scatter, alltoall or sendrecv");
  return program->value;
}

// The ranks of an output, and their distribution over nodes.
struct TestGroup {
  int ranks = 0;
  std::string network;
  ClusterSize size;
};

bool has_duplicates(const std::vector<ListedRank>& ranks) {
  std::set<int> numbers;
  return !std::ranges::all_of(ranks, [&](const ListedRank& rank) { return numbers.insert(rank.rank).second; });
}

// Returns the single list of ranks 0 to n - 1 that the programs of all hosts printed side by side, one or more on each
// host; empty if the list has another form.
std::vector<ListedRank> list_of_one_host(const std::vector<ListedRank>& ranks) {
  std::map<std::string, std::vector<int>> on_host;
  for (const ListedRank& rank : ranks) on_host[rank.host].push_back(rank.rank);
  const int most = std::ranges::max(ranks, {}, &ListedRank::rank).rank;
  if (most >= static_cast<int>(ranks.size())) return {};
  for (auto& [host, numbers] : on_host) {
    std::ranges::sort(numbers);
    const size_t copies = numbers.size() / static_cast<size_t>(most + 1);
    for (size_t i = 0; i < numbers.size(); ++i)
      if (copies == 0 || numbers.size() % copies != 0 || numbers[i] != static_cast<int>(i / copies)) return {};
  }
  std::vector<ListedRank> list;
  for (int rank = 0; rank <= most; ++rank) list.push_back({rank, "", ranks.front().host});
  return list;
}

// Throws BadInput unless the list has each rank from 0 on once.
void check_list(const std::string& path, const std::vector<ListedRank>& ranks) {
  std::map<int, int> times;
  for (const ListedRank& rank : ranks) ++times[rank.rank];
  for (const auto& [rank, count] : times)
    require<BadInput>(count == 1,
                      "{}: found rank {} {} times in the list of devices, expected each rank once: the outputs of "
                      "several programs are mixed, or nccl-tests was built without MPI",
                      path, rank, count);
  int expected = 0;
  for (const auto& [rank, count] : times) {
    require<BadInput>(rank == expected,
                      "{}: found rank {} in the list of devices where rank {} was expected; --ranks, --nodes, "
                      "--ranks-per-node and --network say what the list does not",
                      path, rank, expected);
    ++expected;
  }
}

// Returns the group that the list of devices gives; an empty one if there is no list or flags give all of it.
TestGroup listed_group(const TestOutput& out, const ImportOptions& options) {
  TestGroup group;
  if (out.ranks.empty() || (options.ranks && options.network.size() > 0 && options.nodes && options.ranks_per_node))
    return group;
  std::vector<ListedRank> ranks = out.ranks;
  if (std::ranges::any_of(ranks, [](const ListedRank& rank) { return rank.rank >= 0; })) {
    if (has_duplicates(ranks)) {
      const std::vector<ListedRank> one_host = list_of_one_host(ranks);
      if (one_host.size() > 1) ranks = one_host;
    }
    check_list(out.path, ranks);
  }
  std::map<std::string, int> on_host;
  std::map<std::string, std::vector<std::string>> hosts_of_group;
  for (const ListedRank& rank : ranks) {
    ++on_host[rank.host];
    hosts_of_group[rank.group].push_back(rank.host);
  }
  group.network = "intra";
  for (const auto& [name, hosts] : hosts_of_group) {
    group.ranks = std::max(group.ranks, static_cast<int>(hosts.size()));
    if (std::set(hosts.begin(), hosts.end()).size() > 1) group.network = "inter";
  }
  for (const auto& [host, count] : on_host) group.size.ranks_per_node = std::max(group.size.ranks_per_node, count);
  group.size.nodes = static_cast<int>(on_host.size());
  return group;
}

// Returns the group according to the flags, else according to the list of devices.
TestGroup group_of_output(const TestOutput& out, const ImportOptions& options) {
  TestGroup group = listed_group(out, options);
  group.ranks = options.ranks.value_or(group.ranks);
  require<BadInput>(group.ranks >= 2, "--ranks: found {} in {}, expected at least 2 ranks of a group",
                    group.ranks == 0 ? "no device" : "one device", out.path);
  if (!options.network.empty() || group.network.empty()) group.network = requested_network(options, out.path);
  return group;
}

// Returns whether a printed busbw can be `share` times algbw: both have two decimals, or as many as fit.
bool is_bus_share(const TestRow& row, double share) {
  constexpr double kRounding = 0.006, kOfLongNumbers = 0.002;
  const double slack = kRounding * (1 + share) + kOfLongNumbers * row.busbw;
  return row.algbw <= 0 || std::abs(row.busbw - share * row.algbw) <= slack;
}

// Removes rows whose busbw does not match the operation and its ranks; they count as unreadable. Throws BadInput if
// most do not, because then the operation or the number of ranks is wrong. Some programs print busbw without the
// factor; this is accepted if the output names an operation whose factor is 1 for no number of ranks.
void check_bandwidths(TestOutput& out, Op op, int ranks) {
  const double share = wire_share(op, ranks);
  const bool is_named = find_program(out.program) != kPrograms.end() && op != Op::allreduce;
  const auto fits = [&](const TestRow& row) { return is_bus_share(row, share) || (is_named && is_bus_share(row, 1)); };
  // Small bandwidths with two decimals match any share.
  const auto proves = [&](const TestRow& row) { return fits(row) && !is_bus_share(row, share / 2); };
  const auto proven = std::ranges::count_if(out.rows, proves);
  const auto wrong = std::stable_partition(out.rows.begin(), out.rows.end(), fits);
  const auto wrong_rows = out.rows.end() - wrong;
  if (wrong_rows > proven) {
    const TestRow& row = *std::ranges::max_element(wrong, out.rows.end(), {}, &TestRow::algbw);
    bad_input("{}: found busbw {:.4g} times algbw at {:.0f} bytes, expected {:.4g} times: {} over {} ranks", out.path,
              row.busbw / row.algbw, row.bytes, share, name_of(op), ranks);
  }
  out.unreadable += static_cast<int>(wrong_rows);
  out.rows.erase(wrong, out.rows.end());
}

std::string left_out_summary(const TestOutput& out) {
  return fmt::format("left out: {} with wrong results, {} without a time, {} unreadable", out.wrong, out.without_time,
                     out.unreadable);
}

// The pairs of a sendrecv count as groups of two, however many of them run at once.
void add_output(TestOutput& out, const ImportOptions& options, ImportedSamples& samples) {
  require<BadInput>(!out.rows.empty(), "{}: found no {} time of {}; {}", out.path,
                    options.in_place ? "in-place" : "out-of-place", program_name(out), left_out_summary(out));
  require<BadInput>(!out.has_failed || out.wrong_results > 0,
                    "{}: found values out of bounds, FAILED, and no row with wrong results, expected them named",
                    out.path);
  const Op op = op_of_output(out, options);
  const TestGroup group = group_of_output(out, options);
  check_bandwidths(out, op, group.ranks);
  const int ranks = op == Op::sendrecv ? 2 : group.ranks;
  for (const TestRow& row : out.rows)
    samples.add({.op = op, .network = group.network, .ranks = ranks, .bytes = row.bytes, .seconds = row.seconds});
  samples.note_cluster_size(group.size);
  log_info(fmt::format("{}: {} over {} ranks, {}, {} sizes; {}", out.path, name_of(op), group.ranks, group.network,
                       out.rows.size(), left_out_summary(out)));
}

// Adds the outputs of a file. An unusable output is left out with its reason; if all are, throws BadInput.
void add_file(const std::string& path, const ImportOptions& options, ImportedSamples& samples) {
  std::vector<TestOutput> outputs = read_outputs(path, options.in_place);
  require<BadInput>(std::ranges::any_of(outputs, [](const auto& out) { return !out.rows.empty() || out.wrong > 0; }),
                    "{}: found no {} time, expected a table of size, count, type, ..., as nccl-tests prints it", path,
                    options.in_place ? "in-place" : "out-of-place");
  std::vector<std::string> reasons;
  for (TestOutput& out : outputs) {
    try {
      add_output(out, options, samples);
    } catch (const BadInput& error) {
      reasons.emplace_back(error.what());
    }
  }
  if (reasons.size() == outputs.size()) throw BadInput(reasons.front());
  for (const std::string& reason : reasons) log_info(fmt::format("an output is left out: {}", reason));
}

}  // namespace

void import_nccl_tests(const ImportOptions& options) {
  if (!options.op.empty()) checked_op(options.op);
  ImportedSamples samples("nccl");
  for (const std::string& path : options.files) add_file(path, options, samples);
  samples.write(options);
}

}  // namespace moe::exchange
