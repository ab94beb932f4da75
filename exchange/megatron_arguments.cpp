// Arguments of Megatron-Core, and of FSMoE's published layer, which is a change to it: a bash array to source.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <ostream>

#include "exchange/formats.h"
#include "exchange/tuned_layer.h"
#include "moe/base/check.h"
#include "moe/plan/pipeline.h"

namespace moe::exchange {
namespace {

constexpr int64_t kVocabularyStep = 128;  // --make-vocab-size-divisible-by, by default

class Arguments {
 public:
  void add(std::string_view flag) { lines_.emplace_back(flag); }
  template <class Value>
  void add(std::string_view flag, const Value& value) {
    lines_.push_back(fmt::format("{} {}", flag, value));
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

// Returns "001101" as Python's "([0]*2+[1]*2+[0]*1+[1]*1)": which layers have experts.
std::string layer_frequency(std::string_view moe_layers) {
  std::string text;
  for (size_t begin = 0; begin < moe_layers.size();) {
    const size_t end = std::min(moe_layers.find_first_not_of(moe_layers[begin], begin), moe_layers.size());
    text += fmt::format("{}[{}]*{}", text.empty() ? "" : "+", moe_layers[begin], end - begin);
    begin = end;
  }
  return fmt::format("\"({})\"", text);
}

// Returns a model's parameter; 1: the record is of a layer.
int64_t recorded(const CaseRecord& record, const char* name) {
  return record.parameters.has(name) ? record.parameters.whole(name, record.where) : 1;
}

// Returns how many layers the model has; 0: a run may be of some of them.
int64_t whole_layers(const TunedLayer& tuned) {
  return tuned.chosen.record.key.starts_with("plan/") ? recorded(tuned.chosen.record, "layers") : 0;
}

bool recorded_yes(const CaseRecord& record, const char* name) {
  return record.parameters.has(name) && record.parameters.text(name, record.where) == "yes";
}

// Adds what the model has beside its layers. Megatron-Core ties the output projection unless it is told otherwise.
void add_ends(const CaseRecord& record, Arguments& a) {
  if (record.parameters.has("vocabulary")) {
    a.add("--vocab-size", recorded(record, "vocabulary"));
    if (!recorded_yes(record, "tied_embedding")) a.add("--untie-embeddings-and-output-weights");
  }
  if (recorded_yes(record, "qk_norm")) a.add("--qk-layernorm");
}

void add_model(const TunedLayer& tuned, int64_t ffn_hidden, Arguments& a) {
  const LayerShape& l = tuned.shape.layer;
  const ParallelShape& p = tuned.shape.parallel;
  if (const int64_t layers = whole_layers(tuned); layers > 1) a.add("--num-layers", layers);
  a.add("--hidden-size", l.model_dim);
  a.add("--ffn-hidden-size", ffn_hidden);
  a.add("--num-attention-heads", l.heads);
  a.add("--kv-channels", head_width(l));
  if (l.kv_heads < l.heads) a.add("--group-query-attention");
  if (l.kv_heads < l.heads) a.add("--num-query-groups", l.kv_heads);
  a.add("--position-embedding-type", l.rope_theta > 0 ? "rope" : "learned_absolute");
  if (l.rope_theta > 0) a.add("--rotary-base", std::llround(l.rope_theta));
  add_ends(tuned.chosen.record, a);
  a.add("--seq-length", l.seq);
  a.add("--max-position-embeddings", l.seq);
  a.add("--micro-batch-size", l.batch);
  a.add("--global-batch-size", l.batch * p.dp * recorded(tuned.chosen.record, "micro_batches"));
  a.add("--normalization", l.norm == Norm::rmsnorm ? "RMSNorm" : "LayerNorm");
  if (!l.bias) a.add("--disable-bias-linear");
  a.add("--attention-dropout", 0);  // by default it drops
  a.add("--hidden-dropout", 0);
  if (is_gated(l.ffn)) a.add("--swiglu");
  if (l.dtype == DType::bfloat16) a.add("--bf16");
  if (l.dtype == DType::float16) a.add("--fp16");
  a.add("--tensor-model-parallel-size", p.mp);
  if (p.mp > 1) a.add("--sequence-parallel");
  a.add("--pipeline-model-parallel-size", p.pp);
  if (const int64_t chunks = recorded(tuned.chosen.record, "virtual_stages"); chunks > 1)
    a.add("--num-virtual-stages-per-pipeline-rank", chunks);
  a.add("--expert-model-parallel-size", p.ep);
}

void add_moe(const LayerShape& l, Arguments& a) {
  a.add("--num-experts", l.experts);
  a.add("--moe-router-topk", l.top_k);
  a.add("--moe-router-load-balancing-type", l.aux_loss > 0 ? "aux_loss" : "none");
  if (l.aux_loss > 0) a.add("--moe-aux-loss-coeff", l.aux_loss);
  if (l.z_loss > 0) a.add("--moe-z-loss-coeff", l.z_loss);
  a.add("--moe-token-dispatcher-type", "alltoall");
  if (!l.capacity_factor) return;
  a.add("--moe-expert-capacity-factor", *l.capacity_factor);
  a.add("--moe-pad-expert-input-to-capacity");
}

// A comment stays one, whatever a name holds.
std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::iscntrl(c) != 0; }, '?');
  return text;
}

void write_array(const ExportOptions& options, const TunedLayer& tuned, const Arguments& arguments, std::ostream& out) {
  out << fmt::format("# {}\n", one_line(tuned.name));
  for (const std::string& note : tuned.notes) out << fmt::format("# {}\n", one_line(note));
  out << "MOE_ARGS=(\n";
  for (const std::string& line : arguments.lines()) out << fmt::format("    {}\n", line);
  out << ")\n";
  log_notes(options, tuned);
}

void note_differences(TunedLayer& tuned, std::initializer_list<std::string_view> gates) {
  const LayerShape& l = tuned.shape.layer;
  if (std::ranges::find(gates, l.gate) == gates.end())
    tuned.notes.push_back(fmt::format("the gate {} is not among its: its routing is another", l.gate));
  if (l.dispatcher != "alltoall")
    tuned.notes.push_back(
        fmt::format("the dispatcher {} is not among its: alltoall stands in its place", l.dispatcher));
  if (tuned.shape.rounding != Rounding::megatron)
    tuned.notes.push_back(fmt::format("rows were rounded as {}, it rounds as --capacity-rounding megatron",
                                      name_of(tuned.shape.rounding)));
  if (l.dtype == DType::float64) tuned.notes.emplace_back("it has no float64: float32 stands in its place");
  if (l.rope_theta != std::round(l.rope_theta))
    tuned.notes.push_back(fmt::format("--rotary-base takes whole numbers: {} was planned", l.rope_theta));
  const CaseRecord& record = tuned.chosen.record;
  if (!record.parameters.has("vocabulary"))
    tuned.notes.emplace_back(
        "--vocab-size and --untie-embeddings-and-output-weights are yours: the record is of layers alone");
  else if (const int64_t words = recorded(record, "vocabulary"), step = kVocabularyStep * tuned.shape.parallel.mp;
           words % step != 0)
    tuned.notes.push_back(fmt::format("it pads the vocabulary of {} to a multiple of {}", words, step));
  if (recorded_yes(record, "qk_norm"))
    tuned.notes.emplace_back("--qk-layernorm is the model's: times and memory here leave that norm out");
}

}  // namespace

void write_megatron(const ExportOptions& options, std::ostream& out) {
  TunedLayer tuned = tuned_layer(options, verbs::framework_of("megatron"));
  const LayerShape& l = tuned.shape.layer;
  note_differences(tuned, {"gshard", "switch", "sigmoid"});
  std::ranges::move(verbs::megatron_refusals(tuned.shape, whole_layers(tuned)), std::back_inserter(tuned.notes));
  tuned.notes.emplace_back(
      "--overlap-moe-expert-parallel-comm runs AlltoAll beside another micro-batch's computation: no "
      "schedule here does, so that no record says what it gains");
  const Fields& recorded = tuned.chosen.record.parameters;
  if (recorded.has("pipeline") && recorded.text("pipeline", tuned.name) == name_of(PipelineOrder::gpipe))
    tuned.notes.emplace_back("planned under gpipe: Megatron-Core's order of micro-batches is 1F1B");
  if (l.gate == "gshard" && l.top_k == 1)
    tuned.notes.emplace_back("gshard weighs the one expert of a token by 1, Megatron-Core by its probability");
  Arguments arguments;
  add_model(tuned, tuned.dense_hidden > 0 ? tuned.dense_hidden : l.hidden, arguments);
  if (!tuned.moe_layers.empty()) arguments.add("--moe-layer-freq", layer_frequency(tuned.moe_layers));
  arguments.add("--expert-tensor-parallel-size", tuned.shape.parallel.esp);
  arguments.add("--moe-ffn-hidden-size", l.hidden);
  if (l.shared_hidden > 0) arguments.add("--moe-shared-expert-intermediate-size", l.shared_hidden);
  add_moe(l, arguments);
  // Behind the choice of one expert a softmax is 1, whatever the logits.
  if (l.gate != "sigmoid" && (l.top_k == 1 || l.gate == "switch")) arguments.add("--moe-router-pre-softmax");
  if (l.gate == "sigmoid") arguments.add("--moe-router-score-function", "sigmoid");
  if (const int nodes = expert_nodes(tuned.shape.parallel); l.node_limit > 0 && nodes > 1) {
    arguments.add("--moe-router-num-groups", nodes);
    arguments.add("--moe-router-group-topk", std::min<int64_t>(l.node_limit, nodes));
  }
  // Releases before 0.16 refuse it of other types.
  if (l.experts > tuned.shape.parallel.ep && l.dtype == DType::bfloat16) arguments.add("--moe-grouped-gemm");
  if (tuned.shape.parallel.zero > 0) arguments.add("--use-distributed-optimizer");
  const Recompute recompute = tuned.shape.parallel.recompute;
  if (recompute == Recompute::selective) arguments.add("--recompute-granularity selective");
  if (recompute == Recompute::full)
    arguments.add("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1");
  write_array(options, tuned, arguments, out);
}

// The published layer cuts rows alike, checks for alltoall and a capacity factor, and shards experts over TP.
void write_fsmoe(const ExportOptions& options, std::ostream& out) {
  TunedLayer tuned = tuned_layer(options, verbs::framework_of("fsmoe"));
  const LayerShape& l = tuned.shape.layer;
  const ParallelShape& p = tuned.shape.parallel;
  note_differences(tuned, {"gshard", "switch"});
  if (!l.capacity_factor) tuned.notes.emplace_back("the published layer refuses a layer that drops nothing");
  if (p.mp != p.esp)
    tuned.notes.push_back(
        fmt::format("the published layer shards experts over its TP ranks: MP is {}, ESP {}", p.mp, p.esp));
  if (is_gated(l.ffn)) tuned.notes.emplace_back("the published layer's backward is of ReLU alone");
  if (l.shared_hidden > 0) tuned.notes.emplace_back("the published layer has no shared expert");
  Arguments arguments;
  add_model(tuned, l.hidden, arguments);
  add_moe(l, arguments);
  arguments.add("--pipeline-degree", tuned.chosen.record.degree_forward);
  arguments.add("--bp-pipeline-degree", tuned.chosen.record.degree_backward);
  write_array(options, tuned, arguments, out);
}

}  // namespace moe::exchange
