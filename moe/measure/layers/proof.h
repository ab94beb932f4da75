#pragma once
// Verification of all ranks' outputs and gradients against an autograd reference of the whole layer, stack or model.
#include <functional>
#include <memory>
#include <vector>

#include "moe/base/device_kind.h"
#include "moe/comm/world.h"
#include "moe/layer/reference/stack_reference.h"
#include "moe/measure/layers/layer_bench.h"
#include "moe/measure/layers/rank_run.h"
#include "moe/stack/stack_errors.h"

namespace moe::measure {

/// The autograd references of a benchmark. Schedules with the same computation share a reference, and so do the ranks
/// of a machine, because it takes longer than the passes that it verifies.
class References {
 public:
  /// The inputs of a reference, except the seed and the text, which are the same in the whole benchmark.
  struct Key {
    LayerCase shape;  // case of an MoE layer
    DenseLayers dense;
    LayerSet whole;
    int64_t vocabulary = 0;  // 0: layers alone
    bool tied = false;
    StackChoices choices;
    double tie = 0;  // LayerChoices::tie
    bool preset = false;
    bool operator==(const Key&) const = default;
  };

  /// `timeout_s`: time-out of `world`, after which a process stops waiting for another one that sends nothing.
  References(World& world, DeviceKind device, double timeout_s)
      : world_(world), device_(device), timeout_s_(timeout_s) {}

  /// Returns the reference of a key; it is valid until another key is requested. One process of each machine calls
  /// `compute`. Without a vocabulary, only ModelReference::layers is set. Every process must call it, with equal keys.
  const ModelReference& find_or_compute(Key key, const std::function<ModelReference()>& compute);
  /// Returns the number of references that all processes together computed. All of them must call it.
  int64_t computed() const;

 private:
  void share(int rank, int machine, const std::function<ModelReference()>& compute);

  World& world_;
  DeviceKind device_;
  double timeout_s_;
  std::unique_ptr<Communicator> machine_;  // between the processes on this machine
  std::unique_ptr<Key> key_;               // null: there is no reference yet
  ModelReference reference_;
  int computed_ = 0;
};

/// These convert a reference to bytes, in this machine's format, and back.
std::string pack(const ModelReference& reference);
ModelReference unpack(const std::string& bytes);

/// The context in which all runs of a benchmark are verified.
struct RunVerification {
  World& world;
  References& references;     // those of the benchmark
  const Inspection& inspect;  // called with the ranks first; may be empty
};
/// Verifies a run: sets load, proven_tokens, worst_error and worst_tensor of `run`, or its `wrong`. `ranks`: those of
/// this process, in rank order, after two passes of `plan` and finish_gradients. Every process must call it; all get
/// the same verdict.
void verify_run(const RunVerification& proof, const std::vector<RankRun*>& ranks, const Plan& plan, MeasuredRun& run);

}  // namespace moe::measure
