#pragma once
// The objects of all schedules, and their order in listings.
#include <array>

#include "moe/schedule/schedule.h"

namespace moe {

extern const Schedule kDsMoe, kDsMoeReplicated, kTutel, kTutelImproved, kPipemoeLina, kFsmoeNoIio, kFsmoeNoPartition,
    kFsmoe, kFsmoeInterleaved, kFsmoeDw, kParmS1, kParmS2Aas, kParmS2, kParm, kMontaBaseline, kMontaO1, kMontaO2,
    kMontaO3, kMonta, kLinaBaseline, kLinaFixed, kLinaPriority, kLinaPartition, kLina, kLinaPacked, kWave, kPair1f1b,
    kLancet, kFlowmoe, kChunkedEp;

/// All schedules in the order of listings; those that order whole iterations come last.
inline constexpr std::array kSchedules{
    &kDsMoe,         &kDsMoeReplicated,  &kTutel,   &kTutelImproved, &kPipemoeLina, &kFsmoeNoIio,   &kFsmoeNoPartition,
    &kFsmoe,         &kFsmoeInterleaved, &kFsmoeDw, &kParmS1,        &kParmS2Aas,   &kParmS2,       &kParm,
    &kMontaBaseline, &kMontaO1,          &kMontaO2, &kMontaO3,       &kMonta,       &kLinaBaseline, &kLinaFixed,
    &kLinaPriority,  &kLinaPartition,    &kLina,    &kLinaPacked,    &kWave,        &kPair1f1b,     &kLancet,
    &kFlowmoe,       &kChunkedEp};

/// Adds MoNTA's chunks: AlltoAll, AllGather and copy of each in turn, then the expert, then the same chain back.
void monta_chunks(LayerBuilder& b);

}  // namespace moe
