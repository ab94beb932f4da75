#pragma once
// How FSMoE's print is read where it leaves a choice open. One reading gives one profile and one grid, made in memory
// from the presets: each choice is one function on a profile.
#include <span>
#include <string>
#include <vector>

#include "moe/cost/profile.h"
#include "moe/plan/grid.h"

namespace moe::reproduce {

enum class Testbed : uint8_t { a, b };
std::string_view name_of(Testbed testbed);       // of its cluster: "testbed-a"
std::string_view printed_grid(Testbed testbed);  // under which Table 5's numbers stand: "fsmoe-a"

/// Says whose order testbed A's betas of AlltoAll, AllGather and ReduceScatter have: the authors' driver's or Fig. 5's.
enum class BetaOrder : uint8_t { driver, printed };
/// Says what a collective's beta is per.
enum class BetaUnit : uint8_t { byte, element };
/// Says what gemm's printed beta is per (FLOP, multiply-accumulate), or where the experts' times come from instead.
enum class GemmBeta : uint8_t { flop, mac, table2, driver };
/// Says whether Table 4's f already holds k, or volumes are k = 2 times f.
enum class Capacity : uint8_t { f_alone, k_times_f };
/// Says what prices attention: GEMMs, or the fit in the authors' driver (testbed B's, MP 4).
enum class AttentionBy : uint8_t { gemm, driver };

std::string_view name_of(BetaOrder order);
std::string_view name_of(BetaUnit unit);
std::string_view name_of(GemmBeta gemm);
std::string_view name_of(Capacity capacity);
std::string_view name_of(AttentionBy attention);

struct Reading {
  Testbed testbed = Testbed::b;
  BetaOrder order = BetaOrder::driver;
  BetaUnit unit = BetaUnit::byte;
  GemmBeta gemm = GemmBeta::flop;
  Capacity capacity = Capacity::f_alone;
  AttentionBy attention = AttentionBy::driver;
  double contention = 1;  // slowdown of either network while the other is busy: a fitted knob, 1 is none
  auto operator<=>(const Reading&) const = default;
};

/// Returns what the presets testbed-a and testbed-b hold.
Reading preset_reading(Testbed testbed);
/// Returns every combination of the choices that a testbed leaves open, without contention.
std::vector<Reading> all_readings(Testbed testbed);

/// Return the profile under one convention each.
Profile with_beta_unit(Profile profile, Testbed testbed, BetaOrder order, BetaUnit unit);
Profile with_gemm_per_mac(Profile profile);
Profile with_experts_from_table2(Profile profile, Testbed testbed);
Profile with_driver_experts(Profile profile);
Profile with_attention_by_gemm(Profile profile);
Profile with_driver_attention(Profile profile);

Profile profile_of(const Reading& reading);
Grid grid_of(const Reading& reading);

}  // namespace moe::reproduce
