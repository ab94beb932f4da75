#pragma once
// Orders the tasks of a whole iteration at once (`wave`): passes of several layers and micro-batches share the lanes,
// where every other schedule orders one pass after the other. Stacks and models run such a plan like any other.
//
// The order is found by list scheduling (Graham, SIAM J. Appl. Math. 17, 1969): a free lane takes the ready task with
// the longest tail of work behind it, a half of a backward that makes weights' gradients only if nothing else is ready.
// The order is then justified to the right and to the left (Valls et al., EJOR 165, 2005), and others are drawn. Tasks
// wait for their data, and beside that
//
//   memory   a stage's n-th forward of a layer for its (n - keep)-th backward of one, all of it
//   halves   the backward of layer l - 2 for the weights' gradients of layer l, of the same micro-batch; with several
//            stages a stage's n-th backward of a layer for those of its (n - 2)-th, or of as many micro-batches before
//            as stages are before it (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, ZB-H1)
//   sums     what adds to gradients for what adds to them before it: in the order of micro-batches and chunks
//   parts    of samples in parts, attention for the one of the part before, in a backward of the part behind (TeraPipe,
//            Li et al., ICML 2021)
//   slices   what sends gradients for all micro-batches that add to them
//   turns    what belongs to a turn for all of the turn before, of schedules that restrict the order
//
// With several stages the base of the order is 1F1B's: messages between two stages keep its order.
//
// Gradients are sent where their lane is idle or where its tasks can wait, as many bytes as fit.
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
/// A micro-batch of several samples is cut into smaller ones while an iteration has no more than these.
inline constexpr int kMostCutMicroBatches = 16;
/// With several stages an iteration has at most so many layers of all micro-batches together: more take too long.
inline constexpr int kMostStagedPasses = 2048;

/// An iteration as planned, and what it takes under the profile's contention.
struct WaveResult {
  Plan plan;
  double seconds = 0;
  std::optional<WaveDegrees> degrees;  // none: the plan that was known, which no other beats
};

/// Returns of how many layers a stage keeps activations at a time, of all micro-batches together, at least: of one
/// micro-batch, or what its turns need; with several stages what the first one has in flight under 1F1B.
int least_kept(const ModelShape& model, IterationOrder order);
/// Returns the same and more: so many passes over a chunk of the stage's layers, at least one layer.
int more_kept(const ModelShape& model, int passes);
/// Returns of how many layers a schedule keeps activations at a time where memory holds them: of a micro-batch more
/// than the least, under GPipe of all; if it is restricted, of a layer more, or what its turns need.
int usually_kept(const ModelShape& model, IterationOrder order);

struct WaveSearch {
  int draws = 0;  // of orders by chance that are tried too, the same on every machine
  IterationOrder order = IterationOrder::any;
};

/// Returns the plan, not checked. `pricer` prices one layer of the model; `keep`: of how many layers a stage keeps
/// activations at a time, of all micro-batches together. Throws Unsupported for several stages, or samples in parts, in
/// turns; BadInput where `keep` is less than least_kept.
Plan wave_plan(const LayerPricer& pricer, const ModelShape& model, int keep, const WaveDegrees& degrees,
               const WaveSearch& search = {});

/// Returns the decision for the plan whose tasks are ordered: with each layer's gradients in a slice of their own.
ModelDecision wave_decision(const ModelShape& model, const WaveDegrees& degrees);

/// What a search may decide.
struct WaveChoice {
  int keep = 1;                   // of how many layers a stage keeps activations at a time
  bool cuts_batches = false;      // a micro-batch of several samples may be cut into smaller ones
  int sample_parts = 1;           // into which each sample may be cut (LayerShape::parts)
  int forward = 0, backward = 0;  // chunks of every pass; 0: searched, up to kMostWaveDegree
  IterationOrder order = IterationOrder::any;
};

/// Returns the best of the plans, checked, or `known` where none is faster: so it is never slower than that one. Each
/// is replayed.
WaveResult best_wave(const LayerPricer& pricer, const ModelShape& model, const WaveChoice& choice,
                     const WaveResult& known);

/// Returns the seconds that no plan of these beats, whatever the degrees: each lane's work; tasks that follow each
/// other, within a micro-batch and from one to the next; the step behind them.
double wave_bound(const LayerPricer& pricer, const ModelShape& model, const WaveChoice& choice);

}  // namespace moe
