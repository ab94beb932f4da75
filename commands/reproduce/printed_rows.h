#pragma once
// Numbers printed in papers: configs/papers/*.csv, one reader per file. Each file names its source in its first lines.
#include <string>
#include <string_view>
#include <vector>

namespace moe::reproduce {

struct PrintedOp {  // fsmoe-table2: milliseconds of one operation in one layer
  std::string testbed, model, phase, op;
  double ms = 0;
};
std::vector<PrintedOp> printed_fsmoe_table2();

struct PrintedFit {  // fsmoe-fig5
  std::string op;
  double r_squared = 0;
};
std::vector<PrintedFit> printed_fsmoe_fits();

struct PrintedGate {  // fsmoe-table6: milliseconds of a model's iteration
  std::string gate;
  double deepspeed_moe_ms = 0, fsmoe_ms = 0;
};
std::vector<PrintedGate> printed_fsmoe_table6();

struct PrintedFigure {  // fsmoe-figures: speedups stated beside Figures 6 to 8
  std::string figure, axis;
  int value = 0;  // value on the axis; 0: nothing is varied
  std::string schedule, over, stat;
  double speedup = 0;
};
std::vector<PrintedFigure> printed_fsmoe_figures();

struct PrintedParmLayer {  // parm-table4
  std::string schedule;
  int n_mp = 0, n_esp = 0;
  std::string testbed;
  double speedup = 0;
};
std::vector<PrintedParmLayer> printed_parm_table4();

struct PrintedParmModel {  // parm-table5
  std::string model, testbed;
  double deepspeed_moe_ms = 0, parm_ms = 0;
};
std::vector<PrintedParmModel> printed_parm_table5();

struct PrintedStatistic {  // parm-fig7
  std::string what;
  double value = 0;
};
std::vector<PrintedStatistic> printed_parm_fig7();

/// Returns the value of `what` on a testbed (or "both") in parm-text. Throws BadInput if there is none.
double printed_parm(std::string_view what, std::string_view testbed);

struct PrintedCoefficient {  // parm-coefficients: of float32 elements
  std::string testbed, op;
  double alpha_s = 0, beta_s_per_element = 0;
};
std::vector<PrintedCoefficient> printed_parm_coefficients();

struct PrintedBandwidth {  // monta-table5
  std::string chip;
  double gb_per_s = 0;
};
std::vector<PrintedBandwidth> printed_monta_table5();

struct PrintedPrimitive {  // monta-table8
  std::string strategy, primitive;
  double volume_m = 0;    // 10^6 bytes
  double efficiency = 0;  // share of the theoretical bandwidth
  double latency_ms = 0;
};
std::vector<PrintedPrimitive> printed_monta_table8();

struct PrintedEfficiency {  // monta-fig13
  std::string primitive;
  double volume_m = 0;  // 10^6 bytes; 0: not printed
  double efficiency = 0;
};
std::vector<PrintedEfficiency> printed_monta_fig13();

struct PrintedRatio {  // monta-text
  std::string what;
  int seq = 0;  // thousands of tokens
  double value = 0;
};
std::vector<PrintedRatio> printed_monta_text();

struct PrintedChoice {  // monta-choices
  int seq = 0;          // thousands of tokens
  std::string choice;   // o1, o2 or o3
};
std::vector<PrintedChoice> printed_monta_choices();

struct PrintedLina {  // lina-training
  std::string metric;
  int experts = 0;  // 0: over all cases
  double speedup = 0;
};
std::vector<PrintedLina> printed_lina_training();

struct PrintedLinaShare {  // lina-table1: AlltoAll in a training step
  int experts = 0, layers = 0;
  double alltoall_ms = 0, share = 0;
};
std::vector<PrintedLinaShare> printed_lina_table1();

struct PrintedPipelining {  // lina-table3: efficiency with one expert per device, and with `experts_a_device`
  std::string model;
  double without = 0, with = 0;
  int experts_per_device = 0;
};
std::vector<PrintedPipelining> printed_lina_table3();

struct PrintedUtilization {  // lina-table4: GPUs with 16 experts
  std::string model;
  double baseline = 0, lina = 0, memory = 0, memory_lina = 0;  // shares; memory: at the peak
  int offloads = 0;                                            // 1: experts' parameters are moved to the host's memory
};
std::vector<PrintedUtilization> printed_lina_table4();

struct PrintedInference {  // lina-inference: the file's first lines define each metric
  std::string metric, model;
  int experts = 0, length = 0;
  double value = 0;
};
std::vector<PrintedInference> printed_lina_inference();

/// Returns the value of `what` in lina-text. Throws BadInput if there is none.
double printed_lina_text(std::string_view what);

/// Returns the value of `what` at `seq` in monta-text. Throws BadInput if there is none.
double printed_monta_ratio(std::string_view what, int seq);

}  // namespace moe::reproduce
