#pragma once
// A stack is several layers, some perhaps dense, each the input of the next, over several micro-batches and pipeline
// stages: the layers of a whole iteration's plan. Loss = sum over all tokens of all micro-batches of <y, dY>, where y
// is the last layer's output, and the gates' auxiliary losses of every layer; gradients are its derivatives, summed
// over micro-batches too.
//
// A rank holds the layers of its stage, each once for every micro-batch (MoeLayer) over the same weights. A layer's
// input is the memory of the previous layer's output, forward and backward. The plan's memory slots (moe/plan/memory.h)
// place what passes make: of a chunk's passes, the first layer's input and the last one's output, with their gradients,
// outlast a pass over the stack; those of other layers are overwritten when a slot is used again. A stage has one chunk
// of consecutive layers or, with virtual stages, several.
#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "moe/base/enum_array.h"
#include "moe/comm/communicator.h"
#include "moe/layer/moe_layer.h"
#include "moe/plan/plan.h"

namespace moe {

/// The layers that one rank ran, for code that verifies, dumps or counts: for a stack those of its stage, each once for
/// every micro-batch; for a single layer one cell.
struct RankCells {
  LayerCases cases;                            // by layer of the whole stack, among the ranks of a stage
  std::vector<int> numbers{0};                 // numbers of the rank's layers, ascending
  std::vector<std::vector<MoeLayer*>> layers;  // [place in numbers][micro-batch]

  explicit RankCells(MoeLayer& layer) : cases(layer.shape().shape, {}, {}), layers{{&layer}} {}
  RankCells(LayerCases of_all, std::vector<int> of_rank, std::vector<std::vector<MoeLayer*>> all)
      : cases(std::move(of_all)), numbers(std::move(of_rank)), layers(std::move(all)) {}

  MoeLayer& front() const { return *layers.front().front(); }
  /// Returns any cell with experts; the front if the rank has no such cell.
  MoeLayer& expert_cell() const {
    for (const auto& layer : layers)
      if (!layer.front()->shape().is_dense()) return *layer.front();
    return front();
  }
  bool has(int layer) const { return std::ranges::binary_search(numbers, layer); }
  MoeLayer& at(int layer, int micro_batch) const {
    const auto place = std::ranges::lower_bound(numbers, layer) - numbers.begin();
    return *layers.at(place).at(micro_batch);
  }
};

/// Links a stage's ranks with those at the same place in the neighbouring stages. Forward and backward have separate
/// links, and sends use a separate stream: the lane that sends goes on at once, as in a plan, where only a receive
/// waits. So stages that send to each other at the same time don't wait for each other.
class StageLinks {
 public:
  /// Makes a rank's links, blocking: all ranks of `world` make theirs. With virtual stages the last stage precedes the
  /// first one. In a link the preceding stage has rank 0.
  StageLinks(Communicator& world, const StageSplit& split);

  /// Return the communicator that sends to the next stage (forward) or the one before (backward), and the one that
  /// receives from the opposite stage; null if there is no such stage.
  Communicator* send_link(Phase phase) const { return links(phase).out.get(); }
  Communicator* receive_link(Phase phase) const { return links(phase).in.get(); }

 private:
  struct Links {
    std::unique_ptr<Communicator> out, in;
  };
  const Links& links(Phase phase) const { return links_[phase]; }

  EnumArray<Phase, Links, 2> links_;
};

struct StackShape {
  LayerCase shape;  // of a layer with experts; batch: samples of a micro-batch; parallel.pp stages share the layers
  Flow flow = Flow::sharded;
  int layers = 1, micro_batches = 1;
  DenseLayers dense = {};
  int virtual_stages = 1;                           // chunks of layers that a stage has
  int64_t head_weights = 0, embedding_weights = 0;  // elements of a model's ends whose gradients are summed over DP
  MemorySlots slots = {};                           // none: no pass shares memory
  LayerSet whole = {};

  StageSplit split() const { return split_of(shape, layers, shape.parallel.pp, virtual_stages); }
};
StackShape stack_shape(const Plan& plan);
/// Returns the case of a layer among only the ranks of its stage. Throws Unsupported for stages that are neither whole
/// nodes nor equal parts of one.
LayerCase stage_case(LayerCase shape);

class LayerStack {
 public:
  /// Makes the part of `rank` of `world`: rank = stage x ranks of a stage + rank in it. Blocking: all ranks make
  /// theirs. `seed.layer` is the first layer's. Throws what MoeLayer does, and BadInput for fewer layers than stages.
  /// `device` is this rank's and outlives the stack. If experts are offloaded, Unsupported unless it is the CPU.
  LayerStack(const StackShape& shape, int rank, const LayerSeed& seed, Communicator& world,
             LayerDevice& device = cpu_layer_device());

  const StackShape& shape() const { return shape_; }
  int stage() const { return stage_; }
  /// Returns this stage's layers, ascending, numbered over all stages.
  const std::vector<int>& layers() const { return layers_; }
  bool begins() const { return layers_.front() == 0; }
  bool ends() const { return layers_.back() + 1 == shape_.layers; }
  /// Returns the index of a layer among this stage's layers.
  size_t place_of(int layer) const {
    return static_cast<size_t>(std::ranges::lower_bound(layers_, layer) - layers_.begin());
  }
  /// Returns the pass of one of this stage's layers over a micro-batch.
  MoeLayer& cell(int layer, int micro_batch) const { return *cells_.at(place_of(layer)).at(micro_batch); }
  MoeLayer& front() const { return *cells_.front().front(); }
  RankCells cells() const;
  StageLinks& links() { return links_; }
  const LayerComms& comms() const { return comms_; }

  /// Return the gradients of the stage's layers, one layer after the other, the last layer first: the dense parts',
  /// which are summed over DP, between those of the output projection and of the embedding; and the experts'.
  TensorView dense_gradients() const { return dense_gradients_; }
  TensorView expert_gradients() const { return expert_gradients_; }
  /// The part of a layer, or of a model's end, in either: its first element and its number of elements.
  struct Part {
    int64_t first = 0, elements = 0;
  };
  Part part_of(int layer, bool experts) const;

  /// With offloaded experts only: the view of slot `place` of the window, `elements` long; and the host's copy of all
  /// experts' gradients, laid out as expert_gradients() (part_of()).
  TensorView window(int place, int64_t elements) const;
  TensorView host_gradients() const { return host_gradients_; }

  /// Makes offloaded experts of later passes read the host's weights, or the window's again. A forward alone needs the
  /// host's: the order of fetches assumes the plan's backwards.
  void read_host(bool reads) { reads_host_ = reads; }
  bool reads_host() const { return reads_host_; }

  /// Enqueues the sum over the stage of the gradients of all its layers' gates and norms, all of them at once.
  void sum_replicated(CommCall call);
  /// Divides a layer's experts' gradients, after their sum, by how often they count each token (Parameter::copies).
  void count_once(int layer);
  /// Returns this rank's part of a layer's weights whose gradients are summed over those ranks.
  std::vector<Parameter> weights(int layer, SummedOver over) const;
  /// Enqueues the AllGather of those weights over `comm`, which is that of DP or of EDP (gradient_sums.h).
  void gather_weights(int layer, SummedOver over, Communicator& comm, CommCall call);
  /// Enqueues the AllGather over `dp` of the weights that all ranks of the stage hold, for all its layers.
  void gather_replicated(Communicator& dp, CommCall call);

 private:
  /// Creates a layer's cells, one for each micro-batch, after those of the layers before it.
  void add_layer(int layer, int rank, const LayerSeed& seed, LayerDevice& device);
  /// Allocates the window and the host's gradients of offloaded experts, `expert_elements` in all layers.
  void make_window(int64_t expert_elements, MemorySpace& memory);
  int64_t max_weights(SummedOver over) const;
  /// Returns the memory that a layer's pass over a micro-batch shares, slot by slot.
  LayerMemory memory_of(int layer, int micro_batch);

  StackShape shape_;
  LayerCases cases_;  // by layer, among the ranks of the stage
  int stage_ = 0;
  std::vector<int> layers_;
  StageLinks links_;
  LayerComms comms_;
  Tensor dense_gradients_, expert_gradients_;
  bool reads_host_ = false;
  Tensor window_, host_gradients_;  // only with offloaded experts; window_: (kWindowLayers, weights of a layer)
  Tensor dense_gathered_, experts_gathered_;           // scratch of a layer's gather, one per lane; only with ZeRO
  std::vector<Parameter> replicated_;                  // gates and norms of all layers
  Tensor replicated_sums_;                             // scratch of the sum of their gradients
  std::map<int, std::shared_ptr<TensorStore>> slots_;  // by number of the slot
  std::vector<std::vector<std::unique_ptr<MoeLayer>>> cells_;  // [place in layers_][micro-batch]
};

}  // namespace moe
