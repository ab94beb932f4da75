#include "moe/plan/plan.h"

#include <array>
#include <bit>

#include "moe/base/check.h"

namespace moe {
namespace {

constexpr std::array<std::string_view, kPhases> kPhaseNames{"forward", "backward", "step"};
constexpr std::array<std::string_view, 7> kLaneNames{"compute", "inter",    "intra",  "comm",
                                                     "copy",    "gradient", "receive"};
constexpr std::array<std::string_view, kBuffers> kBufferNames{
    "input",         "gathered_input", "attention_partial", "hidden",
    "routing",       "ordered",        "dispatched",        "gathered",
    "expert_out",    "scattered",      "combined",          "output",
    "gradient",      "tokens",         "token_gradients",   "gathered_output",
    "laid_out",      "reduced",        "exchanged",         "summed",
    "home_gathered", "home_laid_out",  "received",          "logits",
    "shared_input",  "shared_partial", "shared_sum",        "ffn_input",
    "ffn_partial",   "expert_hidden",  "attention_hidden",  "end_input",
    "end_partial",   "softmax_sums"};

class Hash {
 public:
  void add(uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) state_ = (state_ ^ ((value >> (8 * byte)) & 0xff)) * 0x100000001b3ULL;
  }
  void add(double value) { add(std::bit_cast<uint64_t>(value)); }
  void add(std::string_view text) {
    for (const char c : text) add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
    add(text.size());
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325ULL;  // FNV-1a
};

void hash_shape(Hash& hash, const LayerCase& c) {
  const LayerShape& l = c.layer;
  for (const int64_t v : {l.batch, l.seq, l.model_dim, l.hidden, l.heads, l.kv_heads, l.experts, l.top_k})
    hash.add(static_cast<uint64_t>(v));
  for (const double v : {l.capacity_factor.value_or(-1.0), l.aux_loss, l.z_loss}) hash.add(v);
  for (const std::string_view name :
       {name_of(l.ffn), name_of(l.norm), name_of(l.dtype), std::string_view(l.gate), std::string_view(l.order),
        std::string_view(l.dispatcher), std::string_view(l.hook)})
    hash.add(name);
  const ParallelShape& p = c.parallel;
  for (const int v : {p.nodes, p.ranks_per_node, p.dp, p.mp, p.ep, p.esp, p.pp, p.edp})
    hash.add(static_cast<uint64_t>(v));
  hash.add(uint64_t{p.ep_inside} << 1 | uint64_t{l.residual});
  hash.add(name_of(c.rounding));
  if (l.shared_hidden > 0) hash.add(static_cast<uint64_t>(l.shared_hidden));
  if (l.head_dim > 0) {
    hash.add(std::string_view("head_dim"));
    hash.add(static_cast<uint64_t>(l.head_dim));
  }
  if (l.rope_theta > 0) hash.add(l.rope_theta);
  if (!l.causal) hash.add(std::string_view("not causal"));
  if (l.bias) hash.add(std::string_view("bias"));
  if (l.node_limit > 0) hash.add(std::string_view("node_limit")), hash.add(static_cast<uint64_t>(l.node_limit));
  if (c.row_multiple > 1) hash.add(static_cast<uint64_t>(c.row_multiple));
}

void hash_dense(Hash& hash, const DenseLayers& dense) {
  hash.add(std::string_view("dense"));
  hash.add(static_cast<uint64_t>(dense.hidden));
  hash.add(dense.is.size());
  for (const bool is : dense.is) hash.add(uint64_t{is});
}

void hash_ids(Hash& hash, const std::vector<int>& ids) {
  hash.add(ids.size());
  for (const int id : ids) hash.add(static_cast<uint64_t>(id));
}

void hash_accesses(Hash& hash, const std::vector<Access>& accesses) {
  hash.add(accesses.size());
  for (const Access& a : accesses) {
    for (const int v :
         {static_cast<int>(a.buffer), static_cast<int>(a.phase), a.layer, a.chunk, a.chunks, a.micro_batch})
      hash.add(static_cast<uint64_t>(v));
    if (a.again) hash.add(std::string_view("again"));
  }
}

void hash_structure(Hash& hash, const Structure& structure) {
  hash.add(static_cast<uint64_t>(structure.flow));
  hash.add(structure.lanes.size());
  for (const Lane& lane : structure.lanes) {
    hash.add(name_of(lane.kind));
    for (const int v : {lane.stage, int{lane.owns_inter}, int{lane.owns_intra}}) hash.add(static_cast<uint64_t>(v));
    hash_ids(hash, lane.queue);
  }
  hash.add(structure.tasks.size());
  for (const Task& task : structure.tasks) {
    hash.add(name_of(task.kind));
    for (const int v : {static_cast<int>(task.phase), task.micro_batch, task.layer, task.chunk, task.chunks, task.lane,
                        static_cast<int>(task.group), task.slice})
      hash.add(static_cast<uint64_t>(v));
    if (task.again) hash.add(std::string_view("again"));
    hash_ids(hash, task.after);
    hash_accesses(hash, task.reads);
    hash_accesses(hash, task.writes);
  }
}

}  // namespace

std::string_view name_of(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }
std::string_view name_of(LaneKind kind) { return kLaneNames[static_cast<size_t>(kind)]; }
std::string_view name_of(Buffer buffer) { return kBufferNames[static_cast<size_t>(buffer)]; }

std::string Task::name() const {
  std::string text = fmt::format("{} {}", name_of(phase), name_of(kind));
  if (chunks > 1) text += fmt::format(" {}/{}", chunk + 1, chunks);
  if (slice >= 0) text += fmt::format(" slice {}", slice);
  text += fmt::format(" of layer {}{}", layer, again ? ", again" : "");
  if (micro_batch > 0) text += fmt::format(", micro-batch {}", micro_batch);
  return text + fmt::format(" (task {})", id);
}

uint64_t Plan::hash() const {
  Hash hash;
  hash.add(schedule);
  hash.add(static_cast<uint64_t>(rows));
  hash.add(static_cast<uint64_t>(vocabulary));
  hash_shape(hash, shape);
  if (dense.hidden > 0) hash_dense(hash, dense);
  if (step.planned)
    hash.add(uint64_t{step.clips} << 2 | (step.optimizer ? 1 + static_cast<uint64_t>(*step.optimizer) : 0));
  if (step.tied) hash.add(std::string_view("tied"));
  hash_structure(hash, *structure);
  for (const Gradient& gradient : gradients)
    for (const int64_t v : {int64_t{gradient.layer}, gradient.bytes, int64_t{gradient.made_by},
                            int64_t{gradient.experts} | int64_t{gradient.alike} << 1})
      hash.add(static_cast<uint64_t>(v));
  for (const GradientSlice& slice : slices)
    for (const int64_t v : {int64_t{slice.gradient}, slice.begin, slice.end}) hash.add(static_cast<uint64_t>(v));
  return hash.value();
}

}  // namespace moe
