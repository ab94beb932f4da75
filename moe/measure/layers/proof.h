#pragma once
// Proves what ranks computed: every rank's outputs and gradients against the autograd reference of the whole.
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

/// The autograd references of a bench's proofs. Schedules that compute the same share one, and so do the ranks of a
/// machine: a reference takes longer than the passes that it proves.
class References {
 public:
  /// What a reference depends on, beside the seed and the text, which are the bench's.
  struct Key {
    LayerCase shape;  // of a layer with experts
    DenseLayers dense;
    int64_t vocabulary = 0;  // 0: layers alone
    bool tied = false;
    StackChoices choices;
    double tie = 0;  // LayerChoices::tie
    bool preset = false;
    bool operator==(const Key&) const = default;
  };

  /// `timeout_s`: no process of `world` waits for another one in silence for so long.
  References(World& world, DeviceKind device, double timeout_s)
      : world_(world), device_(device), timeout_s_(timeout_s) {}

  /// Returns the key's reference, which is kept until another one is asked for. One process of each machine calls
  /// `compute`; of layers alone only ModelReference::layers is set. Every process of the world calls it, with equal
  /// keys.
  const ModelReference& of(Key key, const std::function<ModelReference()>& compute);
  /// Returns how many references the processes computed together. All of them call it.
  int64_t computed() const;

 private:
  void share(int rank, int machine, const std::function<ModelReference()>& compute);

  World& world_;
  DeviceKind device_;
  double timeout_s_;
  std::unique_ptr<Communicator> machine_;  // of the processes on this machine
  std::unique_ptr<Key> key_;               // null: no reference is known
  ModelReference reference_;
  int computed_ = 0;
};

/// Return a reference as bytes of this machine, and from them.
std::string pack(const ModelReference& reference);
ModelReference unpack(const std::string& bytes);

/// What all runs of a bench are proven with.
struct Proof {
  World& world;
  References& references;     // of the bench
  const Inspection& inspect;  // sees the ranks first; may be empty
};
/// Proves a run. `ranks`: of this process, in rank order, each after two passes of `plan` and finish_gradients. Every
/// process of the world calls it and gets the same verdict: sets `run`'s load, proven_tokens, worst_error and
/// worst_tensor, or `wrong`.
void prove_run(const Proof& proof, const std::vector<RankRun*>& ranks, const Plan& plan, MeasuredRun& run);

}  // namespace moe::measure
