#pragma once
// Verifies the ranks' results: every rank's outputs and gradients against the autograd reference of the whole.
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

/// The autograd references of a benchmark's verifications. Schedules with the same computation share one, and so do the
/// ranks of a machine: a reference takes longer than the passes that it verifies.
class References {
 public:
  /// The inputs of a reference, except the seed and the text, which are the benchmark's.
  struct Key {
    LayerCase shape;  // case of a layer with experts
    DenseLayers dense;
    LayerSet whole;
    int64_t vocabulary = 0;  // 0: layers alone
    bool tied = false;
    StackChoices choices;
    double tie = 0;  // LayerChoices::tie
    bool preset = false;
    bool operator==(const Key&) const = default;
  };

  /// `timeout_s`: no process of `world` waits longer than this for another one that sends nothing.
  References(World& world, DeviceKind device, double timeout_s)
      : world_(world), device_(device), timeout_s_(timeout_s) {}

  /// Returns the key's reference, which is kept until another one is requested. One process of each machine calls
  /// `compute`; for layers alone only ModelReference::layers is set. Every process of the world calls it, with equal
  /// keys.
  const ModelReference& of(Key key, const std::function<ModelReference()>& compute);
  /// Returns how many references the processes computed together. All of them call it.
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

/// Return a reference as bytes for this machine, and from such bytes.
std::string pack(const ModelReference& reference);
ModelReference unpack(const std::string& bytes);

/// The context in which all runs of a benchmark are verified.
struct Proof {
  World& world;
  References& references;     // those of the benchmark
  const Inspection& inspect;  // inspects the ranks first; may be empty
};
/// Verifies a run. `ranks`: those of this process, in rank order, each after two passes of `plan` and finish_gradients.
/// Every process of the world calls it and gets the same verdict: it sets `run`'s load, proven_tokens, worst_error and
/// worst_tensor, or `wrong`.
void prove_run(const Proof& proof, const std::vector<RankRun*>& ranks, const Plan& plan, MeasuredRun& run);

}  // namespace moe::measure
