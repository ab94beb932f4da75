// What runs on each lane, in order and in words, for every schedule on every shape: FSMoE section 6.1 and Figure 3,
// Parm Figure 3, MoNTA Figure 15, Lina Figures 7 and 8. A schedule is written down here as one sequence of steps, of
// which a lane has those whose network it owns.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "tests/properties/cases.h"
#include "tests/schedule/any_decision.h"

namespace moe {
namespace {

using conformance::cases;
using conformance::text_of;

// D G E S C as in the papers; A: AllReduce of partial sums, X + H: a phase of SAA and its sum, H: MP AllGather of rows,
// R: a slice of the gradients, W: gradients of the experts' weights.
const std::map<TaskKind, std::string> kWords{
    {TaskKind::dispatch, "D"},         {TaskKind::allgather, "G"}, {TaskKind::expert, "E"},
    {TaskKind::reducescatter, "S"},    {TaskKind::combine, "C"},   {TaskKind::allreduce, "A"},
    {TaskKind::gather, "H"},           {TaskKind::exchange, "X"},  {TaskKind::sum, "+"},
    {TaskKind::expert_dx, "E"},        {TaskKind::expert_dw, "W"}, {TaskKind::copy, "copy"},
    {TaskKind::home_copy, "home"},     {TaskKind::gradient, "R"},  {TaskKind::mp_allgather, "ag"},
    {TaskKind::mp_reducescatter, "rs"}};

std::string word_of(const Task& task) {
  const auto found = kWords.find(task.kind);
  if (found == kWords.end()) return std::string(name_of(task.kind));
  return found->second + (is_chunked(task.kind) ? fmt::to_string(task.chunk + 1) : "");
}

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

class ExpectedLanes {
 public:
  ExpectedLanes(const Schedule& schedule, const Plan& plan, const Decision& decision, Phase phase)
      : name_(schedule.name), schedule_(schedule), plan_(plan), decision_(decision), phase_(phase) {
    const bool forward = phase == Phase::forward;
    r_ = forward ? plan.degree_forward : plan.degree_backward;
    order_ = forward ? decision.order_forward : decision.order_backward;
    if (forward)
      forward_steps();
    else
      backward_steps();
  }

  std::string on(const Lane& lane) const {
    std::vector<std::string> words;
    for (const Step& step : steps_)
      if (runs_on(step, lane)) words.push_back(step.word);
    const bool sends = phase_ == Phase::backward && plan_.groups[size_t(GroupKind::dp)].size > 1 &&
                       lane.owns(plan_.groups[size_t(GroupKind::dp)].network);
    const size_t experts = expert_gradient_pieces(schedule_, plan_.shape, decision_.micro_op_bytes).size();
    const size_t pieces = plan_.slices.size() - experts;
    if (sends && lane.kind == LaneKind::gradient) words.assign(pieces, "R");
    if (sends && schedule_.gradients == GradientPolicy::micro_ops)  // the last first, so that places stay what they are
      for (size_t i = pieces; i-- > 0;) {
        const size_t gap = decision_.gaps.empty() ? words.size() : static_cast<size_t>(decision_.gaps[i]);
        words.insert(words.begin() + static_cast<std::ptrdiff_t>(std::min(gap, words.size() - (pieces - 1 - i))), "R");
      }
    if (phase_ == Phase::backward && lane.owns(network_of(GroupKind::edp)))  // replicas' have no places given: last
      words.insert(words.end(), experts, "expert_gradient");
    return joined(words);
  }

 private:
  struct Step {
    std::string word;
    GroupKind group;  // none: compute
  };
  Network network_of(GroupKind group) const { return plan_.groups[size_t(group)].network; }

  // A copy has its own lane, or that of the AllGather whose rows it lays out; a group of one rank has no tasks.
  bool runs_on(const Step& step, const Lane& lane) const {
    if (lane.kind == LaneKind::gradient) return false;
    const bool copies = step.word.starts_with("copy") || step.word.starts_with("home");
    if (copies && schedule_.lanes == LaneLayout::by_network_copy) return lane.kind == LaneKind::copy;
    if (step.group == GroupKind::none || (copies && network_of(step.group) == Network::none))
      return lane.kind == LaneKind::compute;
    return network_of(step.group) != Network::none && lane.owns(network_of(step.group));
  }

  void forward_steps() {
    const bool sharded = schedule_.flow == Flow::sharded;
    if (sharded) add("ag", GroupKind::mp);
    add("attention");
    add(sharded ? "rs" : "mp_allreduce", GroupKind::mp);
    if (schedule_.flow == Flow::replicated) add("tokens_allgather", GroupKind::esp);
    add("gate");
    add("order");
    beside_shared();
    add("i_order");
    if (schedule_.flow == Flow::fused) add("ag", GroupKind::mp);  // Parm S1 gathers the tokens last
  }

  void backward_steps() {
    const bool sharded = schedule_.flow == Flow::sharded;
    const bool split =
        schedule_.gradients == GradientPolicy::adaptive || schedule_.gradients == GradientPolicy::beside_dense;
    const int64_t all = gradient_bytes(plan_.shape), in_moe = decision_.gar_in_moe_bytes;
    const int64_t beside = schedule_.gradients == GradientPolicy::adaptive ? all - in_moe - decision_.gar_after_bytes
                                                                           : decision_.gar_beside_dense_bytes;
    add("i_order");
    if (schedule_.flow == Flow::replicated) add("tokens_allgather", GroupKind::esp);  // the split's transpose
    beside_shared();
    if (schedule_.gradients == GradientPolicy::fixed)
      for (size_t i = 0; i < plan_.slices.size(); ++i) gradient();
    add("order");
    add("gate");
    if (schedule_.flow == Flow::replicated) add("tokens_reducescatter", GroupKind::esp);
    if (sharded || schedule_.flow == Flow::fused) add("ag", GroupKind::mp);
    if (split && beside > 0) gradient();
    add(name_ == "fsmoe-dw" ? "attention_dx" : "attention");
    if (name_ == "fsmoe-dw") add("attention_dw");
    add(sharded ? "rs" : "mp_allreduce", GroupKind::mp);
    if (schedule_.gradients == GradientPolicy::after || (split && in_moe + beside < all)) gradient();
  }

  // The shared expert's tokens are gathered where each MP rank has its own; it goes first on its lane, and the sum of
  // its shards last. Where nothing runs beside anything, all of it goes before the MoE part.
  void beside_shared() {
    if (plan_.shape.layer.shared_hidden == 0) return moe_part();
    const bool own = schedule_.flow == Flow::sharded || schedule_.flow == Flow::fused;
    if (own) add("shared_allgather", GroupKind::mp);
    add("shared");
    if (!schedule_.in_sequence) moe_part();
    add(own ? "shared_reducescatter" : "shared_allreduce", GroupKind::mp);
    if (schedule_.in_sequence) moe_part();
  }

  void moe_part() {
    const Network ep = network_of(GroupKind::ep), esp = network_of(GroupKind::esp);
    const bool one_lane = ep == Network::none ? esp == network_of(GroupKind::dp) : ep == esp;
    const bool sums = esp != Network::none, copies = r_ > 1 && network_of(GroupKind::mp) != Network::none;
    if (name_ == "ds-moe-replicated") return chunks(phase_ == Phase::forward ? "D E A C" : "D E C", 1);
    if (name_ == "monta-baseline") return chunks("D E A C", 1);
    if (name_ == "parm-s1") return chunks(sums ? "D E C +" : "D E C", 1);
    if (name_ == "parm-s2-aas") return chunks(sums ? "D E C + H" : "D E C H", 1);
    if (name_ == "parm-s2") {
      chunks("D E", 1);
      chunks(sums ? "X + H" : "X H", plan_.groups[size_t(GroupKind::ep)].size);
    } else if (schedule_.flow == Flow::dropped) {
      chunks(copies ? "D G copy" : "D G", r_);
      chunks("E S", 1);
      chunks(copies ? "C H home" : "C H", r_);
    } else if (name_ == "fsmoe-interleaved" && !order_.empty() && !one_lane) {
      chunks("D", r_);
      if (decision_.gar_in_moe_bytes > 0) gradient();
      chunks("E", r_);
      std::map<char, int> passed;
      for (const char c : order_) add(fmt::format("{}{}", c, ++passed[c]), GroupKind::esp);
      chunks("C", r_);
    } else {
      const bool apart = name_.starts_with("fsmoe") && name_ != "fsmoe-no-iio" && !one_lane;
      chunks(apart ? "D" : "D G", r_);
      if (decision_.gar_in_moe_bytes > 0) gradient();
      if (apart) chunks("G", r_);
      chunks("E", name_ == "lina-partition" ? 1 : r_);
      if (apart) chunks("S", r_);
      chunks(apart ? "C" : "S C", r_);
      if (name_ == "fsmoe-dw" && phase_ == Phase::backward) chunks("W", r_);
    }
  }

  // All letters of chunk 1, then all of chunk 2, ...
  void chunks(std::string_view letters, int parts) {
    for (int part = 1; part <= parts; ++part)
      for (size_t i = 0; i < letters.size();) {
        const size_t end = std::min(letters.find(' ', i), letters.size());
        const std::string letter(letters.substr(i, end - i));
        add(letter + fmt::to_string(part), group_of(letter));
        i = end + 1;
      }
  }
  GroupKind group_of(const std::string& letter) const {
    const bool fused = schedule_.flow == Flow::fused || schedule_.flow == Flow::fused_gated;
    if (letter == "D" || letter == "C" || letter == "X") return fused ? GroupKind::ep_esp : GroupKind::ep;
    if (letter == "S" || letter == "A") return GroupKind::esp;
    if (letter == "G") return schedule_.flow == Flow::dropped ? GroupKind::mp : GroupKind::esp;
    return letter == "H" || letter == "copy" || letter == "home" ? GroupKind::mp : GroupKind::none;
  }
  void add(std::string word, GroupKind group = GroupKind::none) { steps_.push_back({std::move(word), group}); }
  void gradient() {
    if (phase_ == Phase::backward) add("R", GroupKind::dp);
  }

  std::string_view name_;
  const Schedule& schedule_;
  const Plan& plan_;
  const Decision& decision_;
  Phase phase_;
  int r_ = 1;
  LaneOrder order_;
  std::vector<Step> steps_;
};

std::string found_on(const Plan& plan, const Lane& lane, Phase phase) {
  std::vector<std::string> words;
  for (const int id : lane.queue) {
    const Task& task = plan.tasks()[id];
    if (task.phase == phase) words.push_back(word_of(task));
  }
  return joined(words);
}

TEST(LaneOrdersOfAll, AreThoseOfThePapers) {
  std::map<std::string_view, std::set<std::string>> seen;
  uint64_t seed = 0;
  for (const LayerCase& shape : cases())
    for (const Schedule& schedule : schedules()) {
      if (!any_decision::fits(schedule, shape)) continue;
      for (int draw = 0; draw < 3; ++draw) {
        const Decision d = any_decision::any_decision(schedule, shape, ++seed, 5);
        SCOPED_TRACE(text_of(schedule, shape, d));
        const Plan plan = build_plan(schedule, shape, d);
        ASSERT_NO_THROW(check_plan(plan));
        for (const Phase phase : {Phase::forward, Phase::backward}) {
          const ExpectedLanes expected(schedule, plan, d, phase);
          for (const Lane& lane : plan.structure->lanes) {
            const std::string found = found_on(plan, lane, phase);
            ASSERT_EQ(found, expected.on(lane)) << name_of(phase) << " on lane " << name_of(lane.kind);
            seen[schedule.name].insert(found);
          }
        }
      }
    }
  size_t texts = 0;
  for (const auto& [name, orders] : seen) texts += orders.size();
  fmt::print("{} different lane orders of {} schedules\n", texts, seen.size());
  EXPECT_EQ(seen.size(), schedules().size() - 2) << "parm and monta choose among others";
}

// By hand, on two nodes of two ranks: what the sequences above come to.
TEST(LaneOrdersOfAll, ByHand) {
  LayerShape layer{.batch = 2, .seq = 64, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 2, .top_k = 1};
  const LayerCase shape = complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
  const auto lanes = [&](std::string_view schedule, Decision d, Phase phase) {
    const Plan plan = build_plan(find_schedule(schedule), shape, d);
    std::vector<std::string> texts;
    for (const Lane& lane : plan.structure->lanes) texts.push_back(found_on(plan, lane, phase));
    return texts;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(lanes("parm-s2", {}, Phase::backward),
            (Texts{"i_order E1 +1 +2 order gate attention", "D1 X1 X2 R", "H1 H2 mp_allreduce"}));
  EXPECT_EQ(lanes("parm-s1", {}, Phase::forward),
            (Texts{"attention gate order E1 +1 i_order", "D1 C1", "mp_allreduce ag"}));
  EXPECT_EQ(lanes("monta-o2", {2, 2}, Phase::forward), (Texts{"attention gate order E1 i_order", "D1 D2 C1 C2",
                                                              "mp_allreduce G1 copy1 G2 copy2 S1 H1 home1 H2 home2"}));
  EXPECT_EQ(lanes("monta-o3", {2, 2}, Phase::forward),
            (Texts{"attention gate order E1 i_order", "D1 D2 C1 C2", "mp_allreduce G1 G2 S1 H1 H2",
                   "copy1 copy2 home1 home2"}));
  EXPECT_EQ(lanes("lina-baseline", {}, Phase::backward),
            (Texts{"i_order E1 order gate attention", "D1 C1", "G1 S1 ag rs", "R"}));
  EXPECT_EQ(lanes("lina-fixed", {}, Phase::backward),
            (Texts{"i_order E1 order gate attention", "D1 C1 R", "G1 S1 ag rs"}));
  EXPECT_EQ(lanes("lina-partition", {2, 2}, Phase::forward),
            (Texts{"attention gate order E1 i_order", "D1 D2 C1 C2", "ag rs G1 G2 S1 S2"}));
  EXPECT_EQ(lanes("ds-moe-replicated", {}, Phase::backward),
            (Texts{"i_order E1 order gate attention", "tokens_allgather D1 C1 tokens_reducescatter mp_allreduce R"}));
}

}  // namespace
}  // namespace moe
