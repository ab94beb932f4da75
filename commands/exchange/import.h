#pragma once
// What an import understood: times of operations, as records that `fit` takes.
#include <map>
#include <string>
#include <vector>

#include "commands/exchange/exchange.h"
#include "moe/plan/op.h"

namespace moe::exchange {

/// One measurement of a collective, or of a GEMM.
struct ImportedSample {
  Op op = Op::none;
  std::string network = {};  // "inter", "intra"; empty of a GEMM
  int ranks = 0;
  double bytes = 0;        // volume as FSMoE counts it: of an allgather the gathered size
  std::string dtype = {};  // of a GEMM
  double flops = 0;        // of a GEMM
  double seconds = 0;
};

/// How large the cluster is, as files have it; 0: they do not say.
struct ClusterSize {
  int nodes = 0, ranks_per_node = 0;
};

class ImportedSamples {
 public:
  explicit ImportedSamples(std::string backend) : backend_(std::move(backend)) {}

  void add(const ImportedSample& sample);
  /// Notes that the cluster is at least so large.
  void see(const ClusterSize& size);
  bool empty() const { return by_key_.empty(); }

  /// Appends one record for each operation, group and size, with its samples as iterations, and says on stderr how many
  /// records there are, and what fits. Throws BadInput where neither files nor flags say how large
  /// the cluster is, or where a group is larger.
  void write(const ImportOptions& options) const;

 private:
  struct Case {
    ImportedSample first;
    std::vector<double> seconds;
  };
  std::string backend_;
  std::map<std::string, Case> by_key_;
  ClusterSize size_;
};

/// Returns the network that --network says, for files that name none. Throws BadInput naming `what` of the file.
std::string network_asked(const ImportOptions& options, const std::string& what);

// What a profile can take from imported records, printed at an import's end.

/// Fits the records that an import wrote, and says on stderr which rows are good, which are weak, which can't be used
/// and why, what a plan needs beside them, and the next command.
void say_what_fits(const ImportOptions& options);

}  // namespace moe::exchange
