#pragma once
// The schedule `wave`, which orders all tasks of an iteration together, so that passes of several layers and
// micro-batches share the lanes. Most other schedules run one pass after the other.
//
// The order is found by list scheduling (Graham, SIAM J. Appl. Math. 17, 1969): a free lane takes the ready task with
// the longest chain of work after it, and weight gradients only if no other task is ready. The order is then improved
// by forward-backward justification (Valls et al., EJOR 165, 2005), and random variations are tried. Tasks wait for
// their data and, in addition:
//
//   memory   a stage's n-th forward pass of a layer waits for the end of its (n - keep)-th backward pass
//   halves   the backward of layer l - 2 waits for the weights' gradients of layer l, of the same micro-batch; with
//            several stages, a stage's n-th backward of a layer waits for those of its (n - 2)-th, or of as many
//            micro-batches earlier as stages precede it (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, ZB-H1)
//   sums     a task that adds to gradients waits for the previous one, in the order of micro-batches and chunks
//   parts    with samples in parts, attention waits for that of the previous part, in a backward of the next part
//            (TeraPipe, Li et al., ICML 2021)
//   slices   a task that sends gradients waits for all micro-batches that add to them
//   turns    tasks of a turn wait for all tasks of the previous turn, if the schedule restricts the order
//
// With several stages, the base order is 1F1B, and messages between two stages keep that order.
//
// Gradients are sent while their lane is idle or its next task can wait, as many bytes as fit.
#include <compare>
#include <optional>

#include "moe/prices/pricer.h"
#include "moe/schedule/model_plan.h"

namespace moe {

/// The degrees of passes: of the first micro-batch's forward, of the other forwards, of the backwards, and of the last
/// micro-batch's backward.
struct WaveDegrees {
  int first_forward = 1, forward = 1, backward = 1, last_backward = 1;
  auto operator<=>(const WaveDegrees&) const = default;
};
inline constexpr int kMaxWaveDegree = 4;
/// Micro-batches of several samples are cut into smaller ones up to this number of micro-batches in an iteration.
inline constexpr int kMaxCutMicroBatches = 16;
/// With several stages, the limit for layers x micro-batches in an iteration; larger searches take too long.
inline constexpr int kMaxStagedPasses = 2048;

/// A planned iteration, and its seconds under the profile's contention.
struct WaveResult {
  Plan plan;
  double seconds = 0;
  std::optional<WaveDegrees> degrees;  // empty: the known plan, which no other plan beats
};

/// Returns the smallest number of layers, counted over all micro-batches, whose activations a stage must be able to
/// keep: those of one micro-batch, or those in flight in a turn; with several stages, those in flight on the first
/// stage under 1F1B.
int min_kept_layers(const ModelShape& model, IterationOrder order);
/// Returns min_kept_layers() plus the layers of `passes` passes over a chunk of the stage's layers, at least one.
int raised_kept_layers(const ModelShape& model, int passes);
/// Returns the number of layers whose activations a schedule keeps if memory allows: one micro-batch more than
/// min_kept_layers(), under GPipe all; with turns, one layer more, or those in flight in a turn.
int default_kept_layers(const ModelShape& model, IterationOrder order);

struct WaveSearch {
  int draws = 0;  // number of additional random orders; they are the same on every machine
  IterationOrder order = IterationOrder::any;
};

/// Returns the plan without checking it. `pricer` prices one layer of the model; `keep`: number of layers, counted over
/// all micro-batches, whose activations a stage keeps at the same time. Throws Unsupported for turns with several
/// stages or samples in parts; BadInput if `keep` is less than min_kept_layers().
Plan wave_plan(const LayerPricer& pricer, const ModelShape& model, int keep, const WaveDegrees& degrees,
               const WaveSearch& search = {});

/// Returns the decision for the base plan, whose tasks are then reordered: each layer's gradients have their own slice.
ModelDecision wave_decision(const ModelShape& model, const WaveDegrees& degrees);

/// The decisions that a search may make.
struct WaveChoice {
  int keep = 1;                   // number of layers whose activations a stage keeps at the same time
  bool cuts_batches = false;      // micro-batches of several samples may be cut into smaller ones
  int sample_parts = 1;           // number of parts into which each sample may be cut (LayerShape::parts)
  int forward = 0, backward = 0;  // degree of every pass; 0: searched, up to kMaxWaveDegree
  IterationOrder order = IterationOrder::any;
};

/// Returns the fastest plan found by replays, checked, or `known` if none is faster than that.
WaveResult search_wave(const LayerPricer& pricer, const ModelShape& model, const WaveChoice& choice,
                       const WaveResult& known);

/// Returns a lower bound on the seconds of all plans that search_wave() may find, over all degrees, from each lane's
/// work, chains of dependent tasks within and across micro-batches, and the step after them.
double wave_bound(const LayerPricer& pricer, const ModelShape& model, const WaveChoice& choice);

}  // namespace moe
