// CSV tables of measurements of AISimulate and AIConfigurator (github.com/ai-dynamo/aiconfigurator). The names of the
// columns tell what a table holds; times are in milliseconds unless a column's name says otherwise.
#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <tuple>

#include "commands/exchange/csv.h"
#include "commands/exchange/formats.h"
#include "commands/exchange/import.h"
#include "moe/base/check.h"
#include "moe/base/files.h"
#include "moe/base/log.h"
#include "moe/base/registry.h"
#include "moe/base/units.h"

namespace moe::exchange {
namespace {

constexpr int kMaxNumber = 1 << 30;
constexpr int kUsualRanksPerNode = 8;  // ranks of a node in tables that only count nodes

constexpr std::array<Named<Op>, 4> kOps{{{"all_gather", Op::allgather},
                                         {"all_reduce", Op::allreduce},
                                         {"reduce_scatter", Op::reducescatter},
                                         {"alltoall", Op::alltoall}}};

// Returns the bytes of an element; 0 for an unknown type.
int bytes_of_type(std::string_view type) {
  if (type == "int8" || type == "fp8") return 1;
  return type == "half" || type == "bfloat16" || type == "float16" ? 2 : type == "float" || type == "float32" ? 4 : 0;
}

class TableImport {
 public:
  TableImport(const ImportOptions& options, ImportedSamples& samples) : options_(options), samples_(samples) {}

  void add(const std::string& path) {
    constexpr std::string_view kParquet = "PAR1";
    require<BadInput>(beginning_of(path, kParquet.size()) != kParquet,
                      "{}: found a Parquet file, expected its rows as CSV (pandas.read_parquet(FILE).to_csv(CSV))",
                      path);
    const CsvTable csv = read_csv(path);
    const auto has = [&](std::string_view column) { return csv.find(column) < csv.columns.size(); };
    used_ = left_out_ = 0;
    if (has("nccl_dtype"))
      add_collectives(csv);
    else if (has("gemm_dtype"))
      add_gemms(csv);
    else
      add_exchanges(csv);
    log_info(fmt::format("{}: {} rows; left out: {}", path, used_, left_out_));
  }

 private:
  // The message size is a number of elements; for an allgather those gathered, as nccl-tests counts.
  void add_collectives(const CsvTable& csv) {
    const size_t op = csv.column("op_name"), type = csv.column("nccl_dtype"), ranks = csv.column("num_gpus"),
                 size = csv.column("message_size"), latency = csv.column("latency");
    for (const CsvTable::Row& row : csv.rows) {
      const auto* named = std::ranges::find(kOps, row.cells[op], &Named<Op>::name);
      const int bytes = bytes_of_type(row.cells[type]);
      if (named == kOps.end() || bytes == 0) {
        ++left_out_;
        continue;
      }
      ImportedSample s{.op = named->value};
      s.ranks = static_cast<int>(csv.whole(row, ranks, 2, kMaxNumber));
      s.network = network_of(s.ranks, csv.path);
      s.bytes = csv.number(row, size, 1) * bytes;
      s.seconds = csv.number(row, latency, 1e-9) * 1e-3;
      add(s);
    }
  }

  std::string network_of(int ranks, const std::string& path) const {
    if (!options_.network.empty() || !options_.ranks_per_node)
      return requested_network(options_, path + " (without --ranks-per-node)");
    return ranks <= *options_.ranks_per_node ? "intra" : "inter";
  }

  // GEMMs with fewer than 16 rows, columns or terms are left out, because memory limits their time.
  void add_gemms(const CsvTable& csv) {
    constexpr int kThin = 16;
    const size_t type = csv.column("gemm_dtype"), latency = csv.column("latency"), m = csv.column("m"),
                 n = csv.column("n"), k = csv.column("k");
    for (const CsvTable::Row& row : csv.rows) {
      const std::string& dtype = row.cells[type];
      double flops = kFlopsPerMac;
      int64_t least = kMaxNumber;
      for (const size_t size : {m, n, k}) {
        const int64_t number = csv.whole(row, size, 1, kMaxNumber);
        flops *= static_cast<double>(number);
        least = std::min(least, number);
      }
      if ((dtype != "bfloat16" && dtype != "float16") || least < kThin) {
        ++left_out_;
        continue;
      }
      add({.op = Op::gemm, .dtype = dtype, .flops = flops, .seconds = csv.number(row, latency, 1e-9) * 1e-3});
    }
  }

  // Adds DeepEP's combines, which send 16 bits, including their notification, at the fastest number of SMs.
  void add_exchanges(const CsvTable& csv) {
    require<BadInput>(csv.find("combine_transmit_us") < csv.columns.size(),
                      "{}: found none of the columns nccl_dtype, gemm_dtype and combine_transmit_us, expected a table "
                      "of collectives, GEMMs or DeepEP's exchanges",
                      csv.path);
    const size_t transmit = csv.column("combine_transmit_us"), notify = csv.column("combine_notify_us"),
                 nodes = csv.column("node_num"), hidden = csv.column("hidden_size"), tokens = csv.column("num_token"),
                 top_k = csv.column("num_topk");
    std::map<std::tuple<std::string, int, double>, double> fastest;  // seconds by network, ranks and bytes
    for (const CsvTable::Row& row : csv.rows) {
      const auto of = static_cast<int>(csv.whole(row, nodes, 1, kMaxNumber / kUsualRanksPerNode));
      double bytes = bytes_of_type("bfloat16");
      for (const size_t size : {hidden, tokens, top_k})
        bytes *= static_cast<double>(csv.whole(row, size, 1, kMaxNumber));
      const double seconds = (csv.number(row, transmit, 1e-3) + csv.number(row, notify, 0)) * 1e-6;
      const int ranks = of * options_.ranks_per_node.value_or(kUsualRanksPerNode);
      double& least = fastest.try_emplace({of > 1 ? "inter" : "intra", ranks, bytes}, seconds).first->second;
      least = std::min(least, seconds);
      samples_.note_cluster_size({of, ranks / of});
    }
    for (const auto& [key, seconds] : fastest) {
      const auto& [network, ranks, bytes] = key;
      add({.op = Op::alltoall, .network = network, .ranks = ranks, .bytes = bytes, .seconds = seconds});
    }
    left_out_ = static_cast<int>(csv.rows.size()) - used_;
  }

  void add(const ImportedSample& sample) {
    samples_.add(sample);
    ++used_;
  }

  const ImportOptions& options_;
  ImportedSamples& samples_;
  int used_ = 0, left_out_ = 0;  // rows of the current table
};

}  // namespace

void import_aisimulate(const ImportOptions& options) {
  ImportedSamples samples("nccl");
  TableImport tables(options, samples);
  for (const std::string& path : options.files) tables.add(path);
  require<BadInput>(!samples.empty(), "{}: found no row that a profile has, expected collectives or GEMMs of 16 bits",
                    options.files.front());
  samples.write(options);
}

}  // namespace moe::exchange
