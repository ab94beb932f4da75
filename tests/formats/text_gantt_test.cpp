#include "moe/formats/text_gantt.h"

#include <gtest/gtest.h>

#include "moe/base/check.h"

namespace moe {
namespace {

// inter: D1 0-2, D2 2-4, C1 7-10; intra: G1 2-7; compute: nothing.
Structure three_lanes() {
  Structure s;
  s.lanes = {{LaneKind::compute, 0, false, false, {}},
             {LaneKind::inter, 0, true, false, {0, 1, 3}},
             {LaneKind::intra, 0, false, true, {2}}};
  const TaskKind kinds[] = {TaskKind::dispatch, TaskKind::dispatch, TaskKind::allgather, TaskKind::combine};
  for (int id = 0; id < 4; ++id) {
    Task task;
    task.id = id;
    task.kind = kinds[id];
    task.lane = id == 2 ? 2 : 1;
    s.tasks.push_back(task);
  }
  return s;
}

std::string drawn(const Structure& structure, const Timeline& timeline, int width) {
  return text_gantt({{"", structure, timeline}}, width);
}

Timeline times(std::vector<double> start, std::vector<double> end) { return {std::move(start), std::move(end), {}, 0}; }

TEST(TextGantt, DrawsEachLaneThatHasTasks) {
  const std::string text = drawn(three_lanes(), times({0, 2, 2, 7}, {2, 4, 7, 10}), 20);
  EXPECT_EQ(text,
            "inter   |DdddDddd......Cccccc|  70 % busy\n"
            "intra   |....Gggggggggg......|  50 % busy\n"
            "        0             10.00 s\n"
            "C combine, D dispatch, G allgather\nupper case where a task begins\n");
}

TEST(TextGantt, ACellShowsWhatTakesMostOfIt) {
  // Cells of 1 s: D1 takes 0.6 of the first, D2 0.7 of the third; G1's 0.4 s lose against idle time.
  const std::string text = drawn(three_lanes(), times({0, 0.6, 5, 9.5}, {0.6, 2.7, 5.4, 10}), 10);
  EXPECT_EQ(text.substr(0, text.find('\n')), "inter   |DDd......C|  32 % busy");
  EXPECT_NE(text.find("intra   |..........|   4 % busy"), std::string::npos) << text;
}

// Two plans on one scale: the shorter one leaves the rest of its line idle, and is as busy as it was.
TEST(TextGantt, SharesAScale) {
  const Structure lanes = three_lanes();
  const Timeline quick = times({0, 2, 2, 7}, {2, 4, 7, 10}), slow = times({0, 4, 4, 14}, {4, 8, 14, 20});
  EXPECT_EQ(text_gantt({{"quick", lanes, quick}, {"slow", lanes, slow}}, 20),
            "quick\n"
            "inter   |DdDd...Ccc..........|  70 % busy\n"
            "intra   |..Ggggg.............|  50 % busy\n"
            "\n"
            "slow\n"
            "inter   |DdddDddd......Cccccc|  70 % busy\n"
            "intra   |....Gggggggggg......|  50 % busy\n"
            "        0             20.00 s\n"
            "C combine, D dispatch, G allgather\nupper case where a task begins\n");
}

TEST(TextGantt, RefusesWhatItCannotDraw) {
  EXPECT_THROW(drawn(three_lanes(), times({0, 2, 2, 7}, {2, 4, 7, 10}), 9), BadInput);
  EXPECT_THROW(drawn(three_lanes(), times({0, 2, 2}, {2, 4, 7, 10}), 20), WrongResult);
  EXPECT_EQ(drawn(Structure{}, {}, 20), "");
  EXPECT_EQ(drawn(three_lanes(), times({0, 0, 0, 0}, {0, 0, 0, 0}), 20), "");
}

}  // namespace
}  // namespace moe
