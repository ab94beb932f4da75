#pragma once
// The papers' tables and figures by key: what `reproduce` takes and `list` shows.
#include <array>
#include <string_view>

namespace moe::verbs {

struct PaperTable {
  std::string_view name, summary;
};

inline constexpr std::array<PaperTable, 14> kPaperTables{{
    {"fsmoe-table2", "FSMoE: time of each operation in a layer of GPT2-XL and Mixtral-7B"},
    {"fsmoe-table5", "FSMoE: mean speedups over tutel on 1458 layers"},
    {"fsmoe-table6", "FSMoE: iteration time of GPT2-XL under four gates"},
    {"fsmoe-degrees", "FSMoE: layers whose forward and backward degrees differ"},
    {"fsmoe-fig6", "FSMoE: speedups on GPT2-XL, Mixtral-7B and Mixtral-22B"},
    {"fsmoe-fig7", "FSMoE: speedups on testbed A by sequence length and number of GPUs"},
    {"fsmoe-fig8", "FSMoE: speedups on testbed A with two pipeline stages"},
    {"parm-table4", "Parm: mean speedups over DeepSpeed-MoE on configured layers"},
    {"parm-table5", "Parm: speedups on BERT-Base and GPT-2"},
    {"monta-table8", "MoNTA: AlltoAll of an 8K sequence as O1, O2 and O3"},
    {"monta-fig13", "MoNTA: efficiency of AlltoAll and AllGather by volume"},
    {"monta-fig14", "MoNTA: the choice among O1, O2 and O3 by sequence length"},
    {"lina-training", "Lina: training speedups over DeepSpeed-MoE"},
    {"published", "Megatron-Core's layers, DeepSeek's training trace and nccl-tests, as others measured them"},
}};

}  // namespace moe::verbs
