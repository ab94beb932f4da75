// Output of expert-parallel benchmarks: DeepEP's tests (versions 1 and 2) and nccl_ep's ep_bench.
// A dispatch, or a combine, counts as an alltoall of k copies of each token's row in 16 bits, whatever is really sent.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "commands/exchange/formats.h"
#include "commands/exchange/import.h"
#include "commands/exchange/nccl_log.h"
#include "moe/base/check.h"
#include "moe/base/files.h"
#include "moe/base/log.h"
#include "moe/base/units.h"

namespace moe::exchange {
namespace {

constexpr double kBytesPerElement = 2;  // BF16

// Returns the number directly after a text; none if the line lacks it.
std::optional<double> number_behind(std::string_view line, std::string_view text) {
  const size_t found = line.find(text);
  if (found == std::string_view::npos) return std::nullopt;
  line.remove_prefix(found + text.size());
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  double number = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  return error == std::errc{} && std::isfinite(number) && number >= 0 ? std::optional(number) : std::nullopt;
}

// Returns the number directly before a text.
std::optional<double> number_before(std::string_view line, std::string_view text) {
  const size_t found = line.find(text);
  if (found == std::string_view::npos) return std::nullopt;
  const size_t begin = line.substr(0, found).find_last_not_of("0123456789.");
  return number_behind(line.substr(0, found), line.substr(0, begin == std::string_view::npos ? 0 : begin + 1));
}

bool has(std::string_view line, std::string_view text) { return line.find(text) != std::string_view::npos; }

// The configuration that a program prints before its times; 0: not printed.
struct RunConfig {
  double tokens = 0, hidden = 0, top_k = 0, experts = 0;
  double node_limit = 0;  // most nodes to which a token is sent
  int nodes = 0, ranks = 0;

  double bytes() const { return tokens * top_k * hidden * kBytesPerElement; }
  // Returns the mean number of the `groups` equal parts of the experts in which a token's k experts lie, if all sets of
  // k experts are equally likely.
  double parts_of_token(double groups) const {
    double missed = 1;  // the share of tokens with no expert in a given part
    for (int i = 0; i < top_k; ++i) missed *= std::max(0.0, experts - experts / groups - i) / (experts - i);
    return groups * (1 - missed);
  }
};

enum class Kind : uint8_t { dispatch, dispatch_fp8, combine };

struct ExchangeTime {
  Kind kind = Kind::dispatch;
  double bytes = 0, seconds = 0;
  int ranks = 0;
  std::string network = {};
};

// Reads the lines of one file; other text may precede what the programs print.
class ExpertParallelLog {
 public:
  ExpertParallelLog(std::string path, const ImportOptions& options) : path_(std::move(path)), options_(options) {}

  void read(const std::string& raw) {
    const std::string line = strip_log_decoration(raw);
    if (read_config(line)) return;
    if (has(line, "Best dispatch (") || has(line, "Best combine:")) return read_best(line);
    if (has(line, "[rank ") && has(line, "Combine bandwidth:")) return read_low_latency(line);
    if (has(line, "EP:") && (has(line, "| dispatch:") || has(line, "| combine:"))) return read_elastic(line);
    if (has(line, "=== Summary (")) return begin_summary(line);
    if (in_summary_) read_summary(line);
  }

  // Throws BadInput unless there are times of exchanges in 16 bits.
  void finish(ImportedSamples& samples) {
    begin_run();  // ends the last run
    std::map<Kind, int> counts;
    for (const ExchangeTime& time : times_) {
      ++counts[time.kind];
      if (time.kind != Kind::dispatch_fp8)
        samples.add({.op = Op::alltoall,
                     .network = time.network,
                     .ranks = time.ranks,
                     .bytes = time.bytes,
                     .seconds = time.seconds});
    }
    for (const RunConfig& run : runs_)
      samples.note_cluster_size({run.nodes, run.nodes > 0 ? run.ranks / run.nodes : 0});
    require<BadInput>(
        !times_.empty(), "{}: found no time of dispatch or combine, expected {}", path_,
        "what DeepEP's test_intranode.py, test_internode.py, test_low_latency.py or test_ep.py, or ep_bench, prints");
    require<BadInput>(counts[Kind::dispatch] + counts[Kind::combine] > 0,
                      "{}: found {} times of dispatch in FP8 alone, expected dispatch or combine in BF16", path_,
                      counts[Kind::dispatch_fp8]);
    log_info(
        fmt::format("{}: {} times of dispatch in BF16, {} of combine; left out: {} of dispatch in FP8, {} unreadable",
                    path_, counts[Kind::dispatch], counts[Kind::combine], counts[Kind::dispatch_fp8], unreadable_));
  }

 private:
  // Reads "[config] num_tokens=..", the block "Config:" of DeepEP 2, or that of ep_bench.
  bool read_config(const std::string& line) {
    const auto set = [&](double RunConfig::*field, std::string_view text) {
      const auto number = number_behind(line, text);
      if (number) run_.*field = *number;
      return number.has_value();
    };
    if (has(line, "=== NCCL EP Performance Benchmark") || has(line, "Config:")) begin_run();
    if (has(line, "[config] num_tokens=")) {
      begin_run();
      set(&RunConfig::hidden, "hidden=");
      set(&RunConfig::top_k, "num_topk=");
      set(&RunConfig::node_limit, "num_topk_groups=");
      return set(&RunConfig::tokens, "num_tokens=");
    }
    if (const auto nodes = number_behind(line, "> Ranks:")) {
      run_.nodes = whole(*nodes);
      run_.ranks = run_.nodes * whole(number_behind(line, " x ").value_or(0));
      return true;
    }
    if (set(&RunConfig::top_k, "> Experts:")) return set(&RunConfig::experts, "/");
    if (set(&RunConfig::tokens, "> Tokens:")) return set(&RunConfig::hidden, "hidden:");
    if (has(line, "> Testing with")) {
      end_elastic();
      fp8_ = has(line, "use_fp8_dispatch=1") || has(line, "use_fp8_dispatch=True");
      return true;
    }
    if (const auto ranks = number_behind(line, "  Ranks: ")) {
      run_.ranks = whole(*ranks);
      return true;
    }
    if (has(line, "  Sub-test: "))
      bad_input("{}: found ep_bench with ranks of different tokens, expected the same tokens on all ranks", path_);
    return set(&RunConfig::tokens, "  Tokens: ") || set(&RunConfig::hidden, "  Hidden: ") ||
           set(&RunConfig::top_k, "  Top-k: ") || set(&RunConfig::experts, "  Experts: ");
  }

  void begin_run() {
    end_low_latency();
    end_elastic();
    if (run_.tokens > 0) runs_.push_back(run_);
    run_ = {};
    in_summary_ = fp8_ = false;
  }

  static int whole(double number) { return number < 1e6 ? static_cast<int>(number) : 0; }

  // Adds a time for the current configuration.
  void add(Kind kind, double seconds, const std::string& network) {
    require<BadInput>(run_.bytes() > 0, "{}: found times without their configuration, expected {}", path_,
                      "the lines before them, with tokens, hidden and top-k");
    const bool inside = network.empty() ? is_inside(run_.ranks) : network == "intra";
    times_.push_back({kind, run_.bytes(), seconds, ranks_of(inside), inside ? "intra" : "inter"});
  }

  // Returns whether this many ranks fit on one node.
  bool is_inside(int ranks) const {
    if (options_.network.empty() && options_.ranks_per_node) return ranks <= *options_.ranks_per_node;
    return requested_network(options_, path_ + " (without --ranks-per-node)") == "intra";
  }
  int ranks_of(bool inside) const {
    if (run_.ranks > 0) return run_.ranks;
    if (options_.ranks) return *options_.ranks;
    require<BadInput>(options_.ranks_per_node && (inside || options_.nodes),
                      "--ranks: found none, and {} does not print them; expected how many ranks it ran on", path_);
    return *options_.ranks_per_node * (inside ? 1 : *options_.nodes);
  }

  // Reads "[tuning] Best combine: SMs 24, NVL chunk 4, RDMA chunk 20: 35 + 890 us, 59.1 GB/s (RDMA), .." and its older
  // forms: "transmit: 890 us, notify: 35 us", "t: 890 us", and rates alone.
  void read_best(const std::string& line) {
    const Kind kind = has(line, "Best combine:") ? Kind::combine
                      : has(line, "(FP8)")       ? Kind::dispatch_fp8
                                                 : Kind::dispatch;
    const bool between = has(line, "(RDMA)");
    std::optional<double> us = number_behind(line, " t: ");
    if (const auto transmit = number_behind(line, "transmit:"))
      us = *transmit + number_behind(line, "notify:").value_or(0);
    if (has(line, " + ") && number_before(line, " us"))
      us = *number_before(line, " us") + number_before(line, " + ").value_or(0);
    if (kind == Kind::dispatch_fp8) {
      times_.push_back({.kind = kind});
      return;
    }
    const double seconds = us ? *us * 1e-6 : seconds_by_rate(line, between);
    if (!(seconds > 0)) {
      ++unreadable_;
      return;
    }
    add(kind, seconds, between ? "inter" : "intra");
  }

  // Returns the seconds of an exchange from its printed rate; 0 if the line has none. Each token sends one row to every
  // node (or, inside a node, every rank) that has one of its experts; how many that are on average follows from the
  // number of experts. Throws BadInput if --experts or --nodes is missing or does not fit.
  double seconds_by_rate(const std::string& line, bool between) {
    const auto rate = number_before(line, between ? " GB/s (RDMA)" : " GB/s (NVL)");
    if (!rate || !(*rate > 0)) return 0;
    require<BadInput>(options_.experts.has_value(),
                      "--experts: found none, and {} prints rates without times or experts; expected how many experts "
                      "the test had (256 by default)",
                      path_);
    run_.experts = *options_.experts;
    require<BadInput>(run_.top_k <= run_.experts, "--experts: found {}, expected at least the {} of a token",
                      run_.experts, run_.top_k);
    const int parts = between ? options_.nodes.value_or(0) : ranks_of(true);
    require<BadInput>(parts > 0, "--nodes: found none, and {} does not say; expected their number", path_);
    require<BadInput>(
        !between || run_.node_limit == 0 || parts <= run_.node_limit,
        "{}: found rates without times of {} nodes, of which a token goes to {}; expected what a DeepEP of "
        "July 2025 or later prints",
        path_, parts, run_.node_limit);
    return run_.tokens * run_.parts_of_token(parts) * run_.hidden * kBytesPerElement / (*rate * 1e9);
  }

  // Reads "[rank 7] Dispatch bandwidth: .. | Combine bandwidth: 35.01 GB/s, avg_t=415.20 us": the bytes are the rate
  // times the time. Dispatch sends FP8 by default, and no line says so.
  void read_low_latency(const std::string& line) {
    const std::string_view combine = std::string_view(line).substr(line.find("Combine bandwidth:"));
    const auto rank = number_behind(line, "[rank "), rate = number_behind(combine, "bandwidth:"),
               us = number_behind(combine, "avg_t=");
    if (!rank || !rate || !us || !(*rate * *us > 0)) {
      ++unreadable_;
      return;
    }
    if (low_latency_ranks_.contains(whole(*rank))) end_low_latency();  // this rank again: the next of several tests
    low_latency_ranks_.insert(whole(*rank));
    low_latency_bytes_ += *rate * *us * 1e3;
    low_latency_s_ = std::max(low_latency_s_, *us * 1e-6);
  }

  void end_low_latency() {
    if (low_latency_ranks_.empty()) return;
    const int ranks = options_.ranks.value_or(*low_latency_ranks_.rbegin() + 1);
    require<BadInput>(ranks >= 2, "--ranks: found one rank in {}, expected at least 2 ranks of a group", path_);
    const double bytes = std::round(low_latency_bytes_ / static_cast<double>(low_latency_ranks_.size()));
    times_.push_back({Kind::combine, bytes, low_latency_s_, ranks, is_inside(ranks) ? "intra" : "inter"});
    times_.push_back({.kind = Kind::dispatch_fp8});
    low_latency_ranks_.clear();
    low_latency_bytes_ = low_latency_s_ = 0;
  }

  // Reads "* EP:   2/4 | dispatch: 0 GB/s (SO), 860 GB/s (SU), 293.515 us, 252328160 bytes | copy: 5456 GB/s, 92.491
  // us": both kernels count, of the slowest rank.
  void read_elastic(const std::string& line) {
    const bool combines = has(line, "| combine:");
    const size_t second = line.rfind('|');
    const auto us = number_before(std::string_view(line).substr(0, second), " us"),
               rate = number_before(line, " GB/s (SU)"), bytes = number_before(line, " bytes"),
               more = number_before(std::string_view(line).substr(second), " us");
    const auto matches = [&] { return std::abs(*bytes / *us * 1e-3 - *rate) <= 0.51 + 0.01 * *rate; };
    if (!us || !rate || !bytes || !more || !(*us > 0) || !matches()) {
      ++unreadable_;
      return;
    }
    double& most = elastic_s_[combines ? Kind::combine : fp8_ ? Kind::dispatch_fp8 : Kind::dispatch];
    most = std::max(most, (*us + *more) * 1e-6);
  }

  void end_elastic() {
    const std::map<Kind, double> slowest = std::exchange(elastic_s_, {});
    for (const auto& [kind, seconds] : slowest) add(kind, seconds, run_.nodes > 1 ? "inter" : "intra");
  }

  void begin_summary(const std::string& line) {
    in_summary_ = true;
    fp8_ = has(line, "FP8");
    if (const auto ranks = number_behind(line, "across ")) run_.ranks = whole(*ranks);
  }

  // Reads the times that the host observed, "Dispatch (BF16):  avg=.. us" and "Combine:     total=.. us (min=..)";
  // times of kernels alone come after them.
  void read_summary(const std::string& line) {
    if (has(line, "Kernel-only") || has(line, "based on kernel time")) in_summary_ = false;
    const bool dispatches = has(line, "Dispatch"), combines = has(line, "Combine");
    const auto total = number_behind(line, "total="), us = total ? total : number_behind(line, "avg=");
    if (!(dispatches || combines) || !us || has(line, "throughput")) return;
    if (!(*us > 0)) {
      ++unreadable_;
      return;
    }
    const bool fp8 = dispatches && (fp8_ || has(line, "(FP8)"));
    add(combines ? Kind::combine : fp8 ? Kind::dispatch_fp8 : Kind::dispatch, *us * 1e-6, "");
  }

  std::string path_;
  const ImportOptions& options_;
  RunConfig run_;
  std::vector<RunConfig> runs_;
  std::vector<ExchangeTime> times_;
  bool in_summary_ = false, fp8_ = false;
  std::set<int> low_latency_ranks_;
  double low_latency_bytes_ = 0, low_latency_s_ = 0;
  std::map<Kind, double> elastic_s_;  // times of one test's slowest rank
  int unreadable_ = 0;
};

}  // namespace

void import_expert_parallel(const ImportOptions& options) {
  ImportedSamples samples("nccl");
  for (const std::string& path : options.files) {
    std::istringstream in(text_of_file(path, "what DeepEP's tests or ep_bench printed"));
    ExpertParallelLog log(path, options);
    for (std::string line; std::getline(in, line);) log.read(line);
    log.finish(samples);
  }
  samples.write(options);
}

}  // namespace moe::exchange
