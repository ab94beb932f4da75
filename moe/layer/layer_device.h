#pragma once
// The device that a layer runs on: its math, its memory and its implementations of the layer's parts. Each rank has one
// LayerDevice, which outlives the layer and is called only from the thread that issues the rank's tasks.
#include <memory>

#include "moe/layer/gates/gate.h"
#include "moe/layer/orders/order.h"
#include "moe/tensor/math.h"

namespace moe {

class LayerDevice {
 public:
  virtual ~LayerDevice() = default;
  virtual Math& math() = 0;
  /// Recomputes on the device the places of a layout's rows after the layout's counts have changed. On CUDA it copies
  /// the layout's table to the device, which blocks, and enqueues a kernel. On the CPU it does nothing.
  virtual void place(RowLayout& layout) = 0;
  /// unpack() and pack() do the same as unpack_rows and pack_rows of row_layout.h. On CUDA they require a layout that
  /// was put on the device for the experts.
  virtual void unpack(const RowLayout& layout, Rows rows, TensorView data, TensorView experts,
                      std::span<const Rows> to) = 0;
  virtual void pack(const RowLayout& layout, Rows rows, TensorView experts, std::span<const Rows> from,
                    TensorView data) = 0;
  /// Throws BadInput or Unsupported naming the first feature of the layer that this device lacks; gate and order are
  /// not checked.
  virtual void require_runs(const LayerShape& layer) const = 0;
  /// make_gate() and make_order() make the part that the layer's shape names. They throw BadInput listing the known
  /// names, and Unsupported naming the parts that this device has.
  virtual std::unique_ptr<Gate> make_gate(const PartSetup& setup) = 0;
  virtual std::unique_ptr<Order> make_order(const RankShape& rank) = 0;
};

/// Returns the CPU's device, which computes with cpu_math() and has no state.
LayerDevice& cpu_layer_device();

/// Throws Unsupported naming a field that the layer has set and that only planning reads (LayerField::planned_only).
void require_runnable_fields(const LayerShape& layer);
/// Resets the fields that only planning reads to their defaults.
void clear_planned_only_fields(LayerShape& layer);

/// Returns whether a device of this kind can run layers of this type. Only GPUs run 16-bit layers.
bool supports_dtype(DeviceKind kind, DType dtype);

/// Returns whether attention on a device of this kind can store its scores for the backward. Of the two implementations
/// on a GPU, moetune's own kernels can and LibTorch's cannot (attention_heads.h).
bool stores_attention_scores(DeviceKind kind, AttentionBy by);

struct GpuChoices {
  /// False: experts of a layer with a capacity use the fastest algorithm (Batch::fastest), so a first pass blocks and
  /// two processes may differ in the last bits. True: all processes use the same algorithm.
  bool same_bits = false;
  AttentionBy attention = AttentionBy::own;
};

/// Makes the device of the calling thread's GPU. It has every part that the CPU has. Throws NoHardware if this build
/// has no CUDA, or if `choices` select LibTorch's attention and LibTorch's CUDA library can't be opened.
std::unique_ptr<LayerDevice> make_cuda_layer_device(const GpuChoices& choices = {});

}  // namespace moe
