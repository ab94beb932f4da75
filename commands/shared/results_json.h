#pragma once
// The planning verbs' results as JSON, with the keys that the documentation lists.

#include "commands/shared/sweep.h"
#include "moe/base/json.h"
#include "moe/simulator/simulator.h"

namespace moe::commands {

/// Returns schedule, degrees, seconds of both phases and of their MoE parts, gar_in_moe_bytes, bounds, and the other
/// decisions.
Json to_json(const LayerResult& result);
/// Returns the layer's shape and groups.
Json to_json(const LayerCase& shape);
/// Adds dense_layers (their numbers) and dense_hidden if the first `layers` layers have dense ones, and windowed_layers
/// (1 for a layer with the window, else 0), if only some have one.
void add_layer_kinds(Json& json, const DenseLayers& dense, const LayerSet& whole, int layers);
/// Adds lanes (name, busy_s) and tasks (name, phase, layer, chunk, lane, start_s, end_s).
void add_timeline(Json& json, const Plan& plan, const Timeline& timeline);
/// Returns layers[] = {layer, status, schedules[]}.
Json to_json(const std::vector<SweepRow>& rows);

}  // namespace moe::commands
