#pragma once
// Random whole models: stages, micro-batches, placements, contention, measured curves; any decision a schedule has.
#include <cstdint>
#include <string>

#include "moe/schedule/model_plan.h"
#include "tests/prices/random_layer.h"

namespace moe::any_model {

struct AnyModel {
  Profile profile;  // prices all that any schedule does, its packed experts too
  ModelShape model;
  std::string text;  // the seed and what was drawn, for failures
};

/// Gives every second model of several stages two or three chunks of layers a stage, with layers and micro-batches that
/// divide.
void draw_virtual_stages(uint64_t seed, ModelShape& model);
/// Gives the first stage, the last or both their own number of layers, in one of three models of several stages.
void draw_stage_layers(uint64_t seed, ModelShape& model);
/// Gives some layers a window, in two of three causal models whose CP ranks do not exchange keys and values in a ring.
void draw_windows(uint64_t seed, ModelShape& model);
/// Returns one to three stages, one to six layers a stage, some of them dense in every second model, one to nine
/// micro-batches; depends on the seed alone.
AnyModel any_model(uint64_t seed);
/// Returns degrees, gradient splits or pieces' places, drawn layer by layer.
ModelDecision any_model_decision(const Schedule& schedule, const ModelShape& model, uint64_t seed);

}  // namespace moe::any_model
