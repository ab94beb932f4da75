// The replay of FSMoE's MoE part against the closed form of its section 4.2 and the case logic of Algorithm 1.
#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <optional>

#include "moe/base/random.h"
#include "moe/schedule/schedule.h"
#include "moe/simulator/simulator.h"

namespace moe {
namespace {

constexpr uint64_t kSeed = 20250407;
constexpr int kDraws = 100000;

struct Draw {
  int r = 1;
  double a2a = 0, ag = 0, exp = 0, rs = 0, gar = 0;  // of one chunk; gar in all
};

// Log-uniform over three decades, so that every operation is at times the bottleneck.
Draw draw_of(int i) {
  const auto uniform = [&](uint64_t stream) { return random_uniform(kSeed, stream, static_cast<uint64_t>(i)); };
  const auto seconds = [&](uint64_t stream) { return 1e-5 * std::pow(10.0, 3 * uniform(stream)); };
  Draw d{1 + static_cast<int>(uniform(0) * 16), seconds(1), seconds(2), seconds(3), 0, 0};
  d.rs = d.ag;
  if (i % 2 == 1) d.gar = d.r * seconds(4);
  return d;
}

// Q1 to Q7 of FSMoE section 4.2.
std::array<bool, 7> questions(const Draw& d) {
  const double r = d.r, both = d.ag + d.rs, hidden = 2 * (r - 1) * d.a2a;
  return {d.a2a > d.ag,
          r * d.exp > hidden,
          r * d.exp > (r - 1) * both,
          d.gar > both,
          d.gar > r * d.exp - hidden + both,
          d.gar > r * both - hidden,
          d.gar > both + r * d.exp - hidden};
}

int case_of(const std::array<bool, 7>& q) {
  const auto [q1, q2, q3, q4, q5, q6, q7] = q;
  if ((q1 && !q2 && q4) || (q1 && q2 && q5) || (!q1 && !q3 && q6) || (!q1 && q3 && q7)) return 1;
  if ((q1 && q2 && !q5) || (!q1 && q3 && !q7)) return 2;
  return q1 ? 3 : 4;
}

double case_seconds(int which, const Draw& d) {
  const double r = d.r, both = d.ag + d.rs;
  switch (which) {
    case 1:
      return 2 * r * d.a2a + d.gar;
    case 2:
      return 2 * d.a2a + both + r * d.exp;
    case 3:
      return 2 * r * d.a2a + both;
    default:
      return 2 * d.a2a + r * both;
  }
}

double closed_form(const Draw& d) {
  return std::max({case_seconds(1, d), case_seconds(2, d), case_seconds(3, d), case_seconds(4, d)});
}

// FSMoE on two nodes of two ranks, one phase; with gradients in the MoE part where there are any.
class MoePart {
 public:
  static const MoePart& of(const Draw& d) {
    static std::map<std::pair<int, bool>, MoePart> parts;
    return parts.try_emplace({d.r, d.gar > 0}, d).first->second;
  }
  explicit MoePart(const Draw& d) {
    const LayerCase shape = complete({}, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
    const Phases phases = d.gar > 0 ? Phases::backward : Phases::forward;
    structure_ = build_structure(structure_key(find_schedule("fsmoe"), outline_of(shape), {d.r, d.r, 1},
                                               {{.in_moe = d.gar > 0}, {}, {}}, phases));
    replay_.emplace(*structure_);
  }
  // What is not the MoE part takes no time.
  double seconds(const Draw& d) const {
    std::vector<double> by_task;
    for (const Task& task : structure_->tasks) by_task.push_back(seconds_of(task.kind, d));
    return replay_->timeline(by_task).makespan_s;
  }

 private:
  static double seconds_of(TaskKind kind, const Draw& d) {
    switch (kind) {
      case TaskKind::dispatch:
      case TaskKind::combine:
        return d.a2a;
      case TaskKind::allgather:
        return d.ag;
      case TaskKind::expert:
        return d.exp;
      case TaskKind::reducescatter:
        return d.rs;
      case TaskKind::gradient:
        return d.gar;
      default:
        return 0;
    }
  }
  std::shared_ptr<const Structure> structure_;
  std::optional<Replay> replay_;
};

TEST(ClosedForm, IsTheReplayWhereGatherAndScatterTakeEquallyLong) {
  std::array<std::array<int, 5>, 2> cases{};    // by phase and case
  std::array<std::array<int, 2>, 7> answers{};  // of the backwards, by question
  double worst = 0;
  for (int i = 0; i < kDraws; ++i) {
    const Draw d = draw_of(i);
    const auto q = questions(d);
    const int which = case_of(q);
    const double replayed = MoePart::of(d).seconds(d);
    for (const double expected : {closed_form(d), case_seconds(which, d)}) {
      const double error = std::abs(replayed - expected) / expected;
      worst = std::max(worst, error);
      ASSERT_LE(error, 1e-9) << "draw " << i << " of seed " << kSeed << ", case " << which << ": r " << d.r << " a2a "
                             << d.a2a << " ag = rs " << d.ag << " exp " << d.exp << " gar " << d.gar;
    }
    ++cases[d.gar > 0][which];
    if (d.gar > 0)
      for (size_t k = 0; k < q.size(); ++k) ++answers[k][q[k]];
  }
  for (const int phase : {0, 1}) {
    fmt::print("{}: draws by case", phase == 0 ? "forward " : "backward");
    for (size_t c = 1; c <= 4; ++c) fmt::print("  {}: {:>6}", c, cases[phase][c]);
    fmt::print("\n");
  }
  for (size_t k = 0; k < answers.size(); ++k) {
    fmt::print("Q{}: yes {:>6}, no {:>6}\n", k + 1, answers[k][1], answers[k][0]);
    EXPECT_GT(answers[k][0], 1000) << "Q" << k + 1;
    EXPECT_GT(answers[k][1], 1000) << "Q" << k + 1;
  }
  fmt::print("worst relative difference in {} draws: {:.2e}\n", kDraws, worst);
  EXPECT_EQ(cases[0][1], 0) << "without gradients nothing is bound by them";
  for (const size_t c : {2, 3, 4}) EXPECT_GT(cases[0][c], 1000) << "forward case " << c;
  for (const size_t c : {1, 2, 3, 4}) EXPECT_GT(cases[1][c], 1000) << "backward case " << c;
}

// The cases assume t_g = t_s. Where these differ the replay is right, and the case logic at times is not.
TEST(ClosedForm, CaseLogicIsOffWhereGatherAndScatterDiffer) {
  int off = 0;
  double worst = 0;
  for (int i = 0; i < 20000; ++i) {
    Draw d = draw_of(i);
    d.rs *= std::pow(10.0, random_uniform(kSeed, 9, static_cast<uint64_t>(i)) - 0.5);
    const double replayed = MoePart::of(d).seconds(d);
    const double error = std::abs(case_seconds(case_of(questions(d)), d) - replayed) / replayed;
    off += error > 1e-9;
    worst = std::max(worst, error);
  }
  fmt::print("t_g != t_s: case logic off in {:.1f} % of draws, worst by {:.1f} %\n", off / 200.0, 100 * worst);
  EXPECT_GT(off, 100);
}

}  // namespace
}  // namespace moe
