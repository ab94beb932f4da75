#pragma once
// Readings of FSMoE's text where it leaves a choice open. One reading gives one profile and one grid, derived in memory
// from the presets: each choice is one function on a profile.
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "commands/reproduce/priced.h"
#include "moe/prices/profile.h"
#include "moe/shape/grid.h"
#include "moe/shape/model_file.h"
#include "moe/shape/volumes.h"

namespace moe::reproduce {

enum class Testbed : uint8_t { a, b };
std::string_view name_of(Testbed testbed);       // name of its cluster: "testbed-a"
std::string_view printed_grid(Testbed testbed);  // grid with Table 5's numbers: "fsmoe-a"

/// Order of testbed A's betas of AlltoAll, AllGather and ReduceScatter: the authors' driver's or Fig. 5's.
enum class BetaOrder : uint8_t { driver, printed };
/// Unit of a collective's beta.
enum class BetaUnit : uint8_t { byte, element };
/// Unit of gemm's printed beta (FLOP, multiply-accumulate), or the source of the experts' times instead.
enum class GemmBeta : uint8_t { flop, mac, table2, driver };
/// Whether Table 4's f includes k already, or volumes are k = 2 times f.
enum class Capacity : uint8_t { f_alone, k_times_f };
/// Source of attention's price: GEMMs, or the fit in the authors' driver (testbed B's, MP 4).
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
  double contention = 1;  // slowdown of either network while the other is busy, a fitted parameter; 1: none
  auto operator<=>(const Reading&) const = default;
};

/// Returns the reading of the presets testbed-a and testbed-b.
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

// The layers of FSMoE's models (sections 2 and 6.4) on its testbeds: E = nodes, MP = ESP = GPUs of a node.

/// k and f of section 6.4.
inline constexpr int kModelTopK = 2;
inline constexpr double kModelCapacityFactor = 1.2;

/// Returns FSMoE's variant of a model, by its name in the paper's tables: "mixtral-7b".
Model fsmoe_model(std::string_view printed);

/// Returns Table 2's layer of a model, B = 4, L = 1024, on the profile's cluster, unrounded. `capacity` is k f, with
/// k = 2.
LayerCase table2_case(std::string_view model, const Profile& profile, double capacity);

// FSMoE's models (section 6.4) as steps of equal layers.

/// A model in the setting of one of the figures.
struct ModelSetting {
  std::string cluster, model;  // name in configs/clusters; name of the model in FSMoE
  int nodes = 0;               // nodes of the cluster to use; 0: all
  int64_t seq = 0;             // 0: the model's default on that cluster
  int stages = 1, micro_batches = 1;
  auto operator<=>(const ModelSetting&) const = default;
  std::string name() const;  // "mixtral-7b on testbed-a"
};

/// Seconds of a training step by schedule; none: a row for its price is missing.
using StepSeconds = std::map<std::string, std::optional<double>>;
StepSeconds step_seconds(const ModelSetting& run, const std::vector<std::string>& schedules, const Assumptions* assumed,
                         std::set<std::string>& missing);

/// Returns the speedup of `schedule` over `over`.
std::optional<double> speedup_of(const StepSeconds& steps, const std::string& schedule, const std::string& over);

/// Returns the schedules of Figures 6 to 8, with both readings of DeepSpeed-MoE.
const std::vector<std::string>& figure_schedules();

/// Returns the conventions that the figures of all models share.
std::vector<std::string> model_conventions();

}  // namespace moe::reproduce
