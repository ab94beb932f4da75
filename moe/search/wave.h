#pragma once
// Orders all tasks of an iteration together (`wave`): passes of several layers and micro-batches share the lanes, while
// every other schedule orders one pass after the other. Stacks and models run such a plan like any other.
//
// The order is found by list scheduling (Graham, SIAM J. Appl. Math. 17, 1969): a free lane takes the ready task with
// the longest tail of work after it, and a half of a backward for weights' gradients only if no other task is ready.
// The order is then justified to the right and to the left (Valls et al., EJOR 165, 2005), and others are drawn. Tasks
// wait for their data and, in addition:
//
//   memory   a stage's n-th forward of a layer waits for its (n - keep)-th backward of one, all of it
//   halves   the backward of layer l - 2 waits for the weights' gradients of layer l, of the same micro-batch; with
//            several stages, a stage's n-th backward of a layer waits for those of its (n - 2)-th, or of as many
//            micro-batches earlier as stages precede it (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, ZB-H1)
//   sums     a task that adds to gradients waits for earlier ones that do: in the order of micro-batches and chunks
//   parts    with samples in parts, attention waits for that of the previous part, in a backward of the next part
//            (TeraPipe, Li et al., ICML 2021)
//   slices   a task that sends gradients waits for all micro-batches that add to them
//   turns    tasks of a turn wait for all tasks of the previous turn, if the schedule restricts the order
//
// With several stages, the base order is 1F1B's, and messages between two stages keep its order.
//
// Gradients are sent when their lane is idle or its tasks can wait, as many bytes as fit.
#include <compare>
#include <optional>

#include "moe/prices/pricer.h"
#include "moe/schedule/model_plan.h"

namespace moe {

/// Chunks of a pass: of the first micro-batch's forward, of the other forwards, of the backwards, and of the last
/// micro-batch's backward.
struct WaveDegrees {
  int first_forward = 1, forward = 1, backward = 1, last_backward = 1;
  auto operator<=>(const WaveDegrees&) const = default;
};
inline constexpr int kMostWaveDegree = 4;
/// A micro-batch of several samples is cut into smaller ones as long as an iteration has at most this number of them.
inline constexpr int kMostCutMicroBatches = 16;
/// With several stages, the largest number of layers of all micro-batches in an iteration; more take too long.
inline constexpr int kMostStagedPasses = 2048;

/// A planned iteration, and its seconds under the profile's contention.
struct WaveResult {
  Plan plan;
  double seconds = 0;
  std::optional<WaveDegrees> degrees;  // none: the known plan, which no other beats
};

/// Returns the least number of layers, over all micro-batches, whose activations a stage keeps at a time: those of one
/// micro-batch, or what its turns need; with several stages, what the first one has in flight under 1F1B.
int least_kept(const ModelShape& model, IterationOrder order);
/// Returns the same number plus that of `passes` passes over a chunk of the stage's layers, at least one more layer.
int more_kept(const ModelShape& model, int passes);
/// Returns the number of layers whose activations a schedule keeps if memory allows: one more micro-batch than the
/// least, under GPipe all; with turns, one more layer, or what the turns need.
int usually_kept(const ModelShape& model, IterationOrder order);

struct WaveSearch {
  int draws = 0;  // number of random orders to try too; the same on every machine
  IterationOrder order = IterationOrder::any;
};

/// Returns the plan, unchecked. `pricer` prices one layer of the model; `keep`: the number of layers, over all
/// micro-batches, whose activations a stage keeps at the same time. Throws Unsupported for turns with several stages or
/// samples in parts; BadInput if `keep` is less than least_kept.
Plan wave_plan(const LayerPricer& pricer, const ModelShape& model, int keep, const WaveDegrees& degrees,
               const WaveSearch& search = {});

/// Returns the decision for the plan whose tasks are then ordered: each layer's gradients are in a slice of their own.
ModelDecision wave_decision(const ModelShape& model, const WaveDegrees& degrees);

/// The decisions that a search may make.
struct WaveChoice {
  int keep = 1;                   // layers whose activations a stage keeps at the same time
  bool cuts_batches = false;      // micro-batches of several samples may be cut into smaller ones
  int sample_parts = 1;           // parts into which each sample may be cut (LayerShape::parts)
  int forward = 0, backward = 0;  // chunks of every pass; 0: searched, up to kMostWaveDegree
  IterationOrder order = IterationOrder::any;
};

/// Returns the best of the plans, checked, or `known` if none is faster, so it is never slower than `known`. Each plan
/// is replayed.
WaveResult best_wave(const LayerPricer& pricer, const ModelShape& model, const WaveChoice& choice,
                     const WaveResult& known);

/// Returns a lower bound on the seconds of all of these plans, over all degrees: each lane's work; tasks that follow
/// each other within a micro-batch and between micro-batches; the step after them.
double wave_bound(const LayerPricer& pricer, const ModelShape& model, const WaveChoice& choice);

}  // namespace moe
