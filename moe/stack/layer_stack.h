#pragma once
// A stack is all layers of a whole iteration's plan: a sequence of layers with experts or dense layers, which runs over
// several micro-batches and pipeline stages. The loss is the sum, over all tokens of all micro-batches, of <y, dY>,
// where y is the last layer's output, plus the auxiliary losses of all gates. Gradients are the derivatives of this
// loss, summed over micro-batches.
//
// A rank has one MoeLayer for each layer of its stage and each micro-batch; those of a layer share its weights. A
// layer's input is in the memory of the previous layer's output, forward and backward. Passes keep their tensors in the
// plan's memory slots (moe/plan/memory.h), which later passes overwrite. Only the first layer's input and the last
// layer's output of a chunk, with their gradients, are kept until the end of a pass over the stack. A stage has one
// chunk of consecutive layers or, with virtual stages, several.
#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "moe/base/enum_array.h"
#include "moe/comm/communicator.h"
#include "moe/layer/moe_layer.h"
#include "moe/plan/plan.h"

namespace moe {

/// The layers that one rank ran, for code that verifies, dumps or counts. A cell is one layer's pass over one
/// micro-batch. For a stack, these are the cells of the rank's stage; for a single layer, one cell.
struct RankCells {
  LayerCases cases;                            // case of each layer of the whole stack, on the ranks of one stage
  std::vector<int> numbers{0};                 // numbers of the rank's layers, ascending
  std::vector<std::vector<MoeLayer*>> layers;  // [index in `numbers`][micro-batch]

  explicit RankCells(MoeLayer& layer) : cases(layer.shape().shape, {}, {}), layers{{&layer}} {}
  RankCells(LayerCases of_all, std::vector<int> of_rank, std::vector<std::vector<MoeLayer*>> all)
      : cases(std::move(of_all)), numbers(std::move(of_rank)), layers(std::move(all)) {}

  MoeLayer& front() const { return *layers.front().front(); }
  /// Returns the first cell with experts, or the first cell if the rank has only dense layers.
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

/// Communicators between a rank and the ranks at the same position in the previous and the next stage. Forward and
/// backward have separate links, and sends use a separate stream, so that a sending lane continues at once. As in a
/// plan, only receives wait, so two stages that send to each other at the same time don't wait for each other.
class StageLinks {
 public:
  /// Makes a rank's links. Blocks until all ranks of `world` have called it. With virtual stages, the last stage
  /// precedes the first one. In the communicator of a link, the preceding stage has rank 0.
  StageLinks(Communicator& world, const StageSplit& split);

  /// send_link() returns the communicator that sends to the next stage (forward) or the previous stage (backward);
  /// receive_link() the one that receives from the opposite side. Both return null if that stage does not exist.
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
  LayerCase shape;  // case of a layer with experts, for one micro-batch; parallel.pp is the number of stages
  Flow flow = Flow::sharded;
  int layers = 1, micro_batches = 1;
  DenseLayers dense = {};
  int virtual_stages = 1;                           // number of chunks of layers per stage
  int64_t head_weights = 0, embedding_weights = 0;  // elements of a model's ends whose gradients are summed over DP
  MemorySlots slots = {};                           // memory slots of the plan; if empty, no passes share memory
  LayerSet whole = {};

  StageSplit split() const { return split_of(shape, layers, shape.parallel.pp, virtual_stages); }
};
StackShape stack_shape(const Plan& plan);
/// Returns the layer's case restricted to the ranks of one stage. Throws Unsupported unless a stage is a number of
/// whole nodes or an equal part of a node.
LayerCase stage_case(LayerCase shape);

class LayerStack {
 public:
  /// Makes the part of `rank` of `world`, where rank = stage x ranks per stage + rank in the stage. Blocks until all
  /// ranks have called it. `seed.layer` is that of the stack's first layer. `device` belongs to this rank and must
  /// outlive the stack. Throws the exceptions of MoeLayer, BadInput for fewer layers than stages, and Unsupported for
  /// offloaded experts on a device other than the CPU.
  LayerStack(const StackShape& shape, int rank, const LayerSeed& seed, Communicator& world,
             LayerDevice& device = cpu_layer_device());

  const StackShape& shape() const { return shape_; }
  int stage() const { return stage_; }
  /// Returns the numbers of this stage's layers in the whole stack, ascending.
  const std::vector<int>& layers() const { return layers_; }
  bool begins() const { return layers_.front() == 0; }
  bool ends() const { return layers_.back() + 1 == shape_.layers; }
  /// Returns the index of a layer among this stage's layers.
  size_t place_of(int layer) const {
    return static_cast<size_t>(std::ranges::lower_bound(layers_, layer) - layers_.begin());
  }
  /// Returns the cell of one of this stage's layers and a micro-batch.
  MoeLayer& cell(int layer, int micro_batch) const { return *cells_.at(place_of(layer)).at(micro_batch); }
  MoeLayer& front() const { return *cells_.front().front(); }
  RankCells cells() const;
  StageLinks& links() { return links_; }
  const LayerComms& comms() const { return comms_; }

  /// Return the gradients of the stage's layers, one layer after the other, the last layer first. dense_gradients() has
  /// those of the output projection, the layers' dense parts and the embedding, in this order, which are summed over
  /// DP; expert_gradients() has the experts'.
  TensorView dense_gradients() const { return dense_gradients_; }
  TensorView expert_gradients() const { return expert_gradients_; }
  /// The elements of a layer, or of a model's end, in dense_gradients() or expert_gradients().
  struct Part {
    int64_t first = 0, elements = 0;
  };
  Part part_of(int layer, bool experts) const;

  /// For offloaded experts only. window() returns the first `elements` elements of place `place` of the expert window;
  /// host_gradients() the host's copy of all experts' gradients, in the layout of expert_gradients().
  TensorView window(int place, int64_t elements) const;
  TensorView host_gradients() const { return host_gradients_; }

  /// Makes offloaded experts read their weights from host memory (true) or from the expert window (false) in later
  /// passes. A forward without a backward needs host memory, because the plan's fetches assume that its backwards run.
  void set_reads_host(bool reads) { reads_host_ = reads; }
  bool reads_host() const { return reads_host_; }

  /// Enqueues one AllReduce over the stage of the gradients of all its layers' gates and norms.
  void sum_replicated(CommCall call);
  /// Divides the summed gradients of a layer's experts by the number of times that they count each token
  /// (Parameter::copies).
  void count_once(int layer);
  /// Returns this rank's part of the layer's weights whose gradients are summed over the group `over`.
  std::vector<Parameter> weights(int layer, SummedOver over) const;
  /// Enqueues the AllGather of these weights over `comm`, the communicator of DP or EDP (gradient_sums.h).
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
  LayerCases cases_;  // case of each layer, on the ranks of the stage
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
