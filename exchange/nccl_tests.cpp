// What nccl-tests prints, and its JSON (-J). Sizes are as here: of an allgather what is gathered, of an alltoall the
// whole buffer, one's own part included.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "exchange/formats.h"
#include "exchange/imported_samples.h"
#include "exchange/json_fields.h"
#include "exchange/nccl_log.h"
#include "moe/base/check.h"
#include "moe/base/file_text.h"
#include "moe/base/json_input.h"
#include "moe/base/log.h"

namespace moe::exchange {
namespace {

struct TestProgram {
  std::string_view name;
  Op op;
};
constexpr std::array<TestProgram, 11> kPrograms{{{"all_reduce", Op::allreduce},
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

constexpr double kMostRanksOfProcess = 4096;

// Adds every rank. Where no process lists two devices, each lists its first alone, for all its ranks.
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

// Returns whether the program's or the file's name is the test's: all_reduce_perf, all_reduce.txt, but no
// alltoallv_perf.
bool is_named(const std::string& file, std::string_view test) {
  const bool begins = file.starts_with(test);
  return begins && (file.size() == test.size() || std::isalpha(static_cast<unsigned char>(file[test.size()])) == 0);
}

// Returns the program of nccl-tests that a program's or a file's name is of; kPrograms.end(): none.
auto find_program(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename();
  return std::ranges::find_if(kPrograms, [&](const TestProgram& program) { return is_named(name, program.name); });
}

std::string program_name(const TestOutput& out) {
  return out.program.empty() ? "an unnamed program" : "'" + out.program + "'";
}

Op checked_op(const std::string& name) {
  const auto op = find_op(name);
  const bool known = op && *op != Op::none && std::ranges::find(kPrograms, *op, &TestProgram::op) != kPrograms.end();
  require<BadInput>(known, "--op: found '{}', expected one of: alltoall, allgather, reducescatter, allreduce, sendrecv",
                    name);
  return *op;
}

// Returns the op of the program's name; where that is none of nccl-tests', what --op names, else the file's name.
Op op_of_output(const TestOutput& out, const ImportOptions& options) {
  const auto* program = find_program(out.program);
  if (program == kPrograms.end() && !options.op.empty()) return checked_op(options.op);
  if (program == kPrograms.end() && out.program.empty()) program = find_program(out.path);
  if (program == kPrograms.end())
    bad_input("--op: found none, and {} is of {}; expected what it times", out.path, program_name(out));
  if (program->op == Op::none)
    bad_input("{}: found the output of {}, expected one of an operation that layers have: {}", out.path,
              out.program.empty() ? fmt::format("{}_perf", program->name) : out.program,
              "all_reduce, all_gather, reduce_scatter, alltoall or sendrecv");
  return program->op;
}

// The ranks of an output, and how they share nodes.
struct TestGroup {
  int ranks = 0;
  std::string network;
  ClusterSize size;
};

bool has_duplicates(const std::vector<ListedRank>& ranks) {
  std::set<int> numbers;
  return !std::ranges::all_of(ranks, [&](const ListedRank& rank) { return numbers.insert(rank.rank).second; });
}

// Returns the one list of ranks 0 to n - 1 that every host's program printed, where they ran side by side, one or more
// on a host; empty: it is something else.
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

// Sets what the devices say; a list that is not whole says nothing where --ranks is given.
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

// Returns the group as flags say, else as the devices do.
TestGroup group_of_output(const TestOutput& out, const ImportOptions& options) {
  TestGroup group = listed_group(out, options);
  group.ranks = options.ranks.value_or(group.ranks);
  require<BadInput>(group.ranks >= 2, "--ranks: found {} in {}, expected at least 2 ranks of a group",
                    group.ranks == 0 ? "no device" : "one device", out.path);
  if (!options.network.empty() || group.network.empty()) group.network = network_asked(options, out.path);
  return group;
}

// Returns whether a printed busbw over algbw can be `share`: both are rounded to two digits behind the point.
bool is_bus_share(const TestRow& row, double share) {
  constexpr double kRounding = 0.006, kOfLongNumbers = 0.002;
  const double slack = kRounding * (1 + share) + kOfLongNumbers * row.busbw;
  return row.algbw <= 0 || std::abs(row.busbw - share * row.algbw) <= slack;
}

// Takes out rows whose busbw is not that of the operation and its ranks, which count as unreadable. Throws BadInput if
// most are: then the operation or the number of ranks is wrong. Some programs print busbw without that factor: where
// the output names its operation, and no number of ranks makes the factor 1, they are accepted.
void check_bandwidths(TestOutput& out, Op op, int ranks) {
  const double share = wire_share(op, ranks);
  const bool is_named = find_program(out.program) != kPrograms.end() && op != Op::allreduce;
  const auto fits = [&](const TestRow& row) { return is_bus_share(row, share) || (is_named && is_bus_share(row, 1)); };
  // Small bandwidths of two digits fit any share.
  const auto proves = [&](const TestRow& row) { return fits(row) && !is_bus_share(row, share / 2); };
  const auto proven = std::ranges::count_if(out.rows, proves);
  const auto wrong = std::ranges::stable_partition(out.rows, fits);
  if (std::ssize(wrong) > proven) {
    const TestRow& row = *std::ranges::max_element(wrong, {}, &TestRow::algbw);
    bad_input("{}: found busbw {:.4g} times algbw at {:.0f} bytes, expected {:.4g} times: {} over {} ranks", out.path,
              row.busbw / row.algbw, row.bytes, share, name_of(op), ranks);
  }
  out.unreadable += static_cast<int>(wrong.size());
  out.rows.erase(wrong.begin(), wrong.end());
}

std::string left_out(const TestOutput& out) {
  return fmt::format("left out: {} with wrong results, {} without a time, {} unreadable", out.wrong, out.without_time,
                     out.unreadable);
}

// A pair sends and receives, whatever ranks do so beside it.
void add_output(TestOutput& out, const ImportOptions& options, ImportedSamples& samples) {
  require<BadInput>(!out.rows.empty(), "{}: found no {} time of {}; {}", out.path,
                    options.in_place ? "in-place" : "out-of-place", program_name(out), left_out(out));
  require<BadInput>(!out.has_failed || out.wrong_results > 0,
                    "{}: found values out of bounds, FAILED, and no row with wrong results, expected them named",
                    out.path);
  const Op op = op_of_output(out, options);
  const TestGroup group = group_of_output(out, options);
  check_bandwidths(out, op, group.ranks);
  const int ranks = op == Op::sendrecv ? 2 : group.ranks;
  for (const TestRow& row : out.rows)
    samples.add({.op = op, .network = group.network, .ranks = ranks, .bytes = row.bytes, .seconds = row.seconds});
  samples.see(group.size);
  log_info(fmt::format("{}: {} over {} ranks, {}, {} sizes; {}", out.path, name_of(op), group.ranks, group.network,
                       out.rows.size(), left_out(out)));
}

// Adds a file's outputs; one that can't be used is left out with its reason, unless all are.
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
