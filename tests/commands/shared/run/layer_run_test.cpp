// Every schedule of a layer verified and run: paced no faster than modelled, unpaced on the host.
#include "commands/shared/run/layer_run.h"

#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>

#include "commands/shared/run/layer_records.h"
#include "moe/record/record_json.h"
#include "moe/simulator/simulator.h"
#include "tests/base/scratch.h"
#include "tests/schedule/any_decision.h"

namespace moe::commands {
namespace {

LayerJob small_job(bool emulated) {
  LayerJob job;
  job.name = "small";
  LayerShape layer;
  layer.batch = 1;
  layer.seq = emulated ? 256 : 32;
  layer.model_dim = emulated ? 1024 : 32;
  layer.hidden = 2 * layer.model_dim;
  layer.heads = 8;
  const Profile profile = find_profile("testbed-b");
  ParallelShape parallel;
  parallel.nodes = emulated ? profile.nodes : 2;
  parallel.ranks_per_node = emulated ? profile.ranks_per_node : 2;
  job.model.shape = complete(layer, parallel, Rounding::ragged);
  job.predicted_by = profile;
  if (emulated) job.paced_by = profile;
  job.pricing.nearest = true;
  job.schedules = any_decision::fitting(job.shape());
  job.settings.emulated = emulated;
  job.settings.iterations = 2;
  return job;
}

// A layer whose reference would take too long is timed itself, and its plans are proven on a smaller one.
TEST(LayerRun, ALargeLayersPlansAreProvenOnASmallerOne) {
  LayerJob job = small_job(false);
  LayerShape layer = job.shape().layer;
  layer.batch = 3;
  job.model.shape = complete(layer, job.shape().parallel, Rounding::ragged);
  job.schedules = {&find_schedule("tutel"), &find_schedule("fsmoe")};
  const LayerOutcome itself = run_layer_job(job, {});
  job.settings.max_reference_flops = 0;
  const LayerOutcome smaller = run_layer_job(job, {});
  const double tokens = static_cast<double>(job.shape().layer.batch * job.shape().layer.seq * job.shape().parallel.dp);
  for (size_t s = 0; s < job.schedules.size(); ++s) {
    const CaseRecord &own = itself.runs[s].record, &other = smaller.runs[s].record;
    EXPECT_EQ(own.summary.number("proven_tokens", ""), tokens);
    EXPECT_NE(other.summary.number("proven_tokens", ""), tokens);
    EXPECT_EQ(other.status, CaseStatus::ok) << other.reason;
    EXPECT_GT(other.summary.number("worst_error", ""), 0);
    EXPECT_EQ(other.samples[0].values.size(), 2U);
    EXPECT_EQ(smaller.runs[s].plan.shape.layer.seq, job.shape().layer.seq);
  }
}

TEST(LayerRun, GraphsOfPassesAreAGpusAlone) {
  LayerJob job = small_job(false);
  job.schedules = {&find_schedule("tutel")};
  EXPECT_FALSE(run_layer_job(job, {}).runs.front().record.summary.has("replayed_s"));
  job.settings.graphs = true;
  EXPECT_THROW(run_layer_job(job, {}), Unsupported);
  const CaseRecord record = run_or_record_failure(job, {}).runs.front().record;
  EXPECT_EQ(record.status, CaseStatus::unsupported);
  EXPECT_EQ(record.reason, "recorded passes: found the CPU, expected a GPU, whose streams have graphs");
}

// Gates know no nodes: a machine's runs are refused, while an emulated cluster is paced by what plans say.
TEST(LayerRun, ALimitOfNodesIsPlannedOnly) {
  LayerJob job = small_job(false);
  job.schedules = {&find_schedule("tutel")};
  job.model.shape.layer.node_limit = 1;
  const LayerOutcome outcome = run_layer_job(job, {});
  ASSERT_EQ(outcome.runs.size(), 1U);
  EXPECT_EQ(outcome.runs[0].record.status, CaseStatus::unsupported);
  EXPECT_TRUE(outcome.runs[0].record.reason.starts_with(
      "node_limit: found a value, expected none: only plans and emulated clusters support it"));
}

TEST(LayerRun, EverySchedulesRunIsVerifiedAndNoFasterThanModelled) {
  const LayerJob job = small_job(true);
  const LayerOutcome outcome = run_layer_job(job, {});
  ASSERT_EQ(outcome.runs.size(), job.schedules.size());
  for (const auto& [record, plan, predicted, ranks, slowest, tasks, packing] : outcome.runs) {
    EXPECT_TRUE(record.status == CaseStatus::ok || record.status == CaseStatus::invalid) << record.reason;
    EXPECT_GT(record.summary.number("worst_error", ""), 0);
    EXPECT_LT(record.summary.number("worst_error", ""), 2e-5);
    EXPECT_TRUE(record.emulated);
    EXPECT_GE(record.dilation * record.prediction.number("total_s", ""), 0.0599);
    EXPECT_GE(measured_over_predicted(record), 1 - 1e-6);
    ASSERT_EQ(record.samples.size(), 2U);
    EXPECT_EQ(record.samples[0].values.size(), 2U);
    EXPECT_EQ(record.samples[0].values[0].size(), 4U);
    ASSERT_EQ(ranks.size(), 4U);
    EXPECT_LT(slowest, 4);
    for (const std::vector<TaskTime>& measured : ranks) {
      ASSERT_EQ(measured.size(), plan.tasks().size());
      for (const Task& task : plan.tasks())  // measured order keeps every dependency
        for (const int before : task.after) EXPECT_LE(measured[before].end_s, measured[task.id].start_s + 1e-9);
    }
  }
}

// Chunks are views of what is there once.
TEST(LayerRun, NoDegreeNeedsMoreMemoryAndNoTimedPassMakesTensors) {
  LayerJob job = small_job(false);
  job.schedules.clear();
  job.tried = &find_schedule("fsmoe");
  job.tried_degrees = {1, 8};
  for (const bool drops : {true, false}) {
    if (!drops) job.model.shape.layer.capacity_factor.reset();
    const LayerOutcome outcome = run_layer_job(job, {});
    ASSERT_EQ(outcome.tried.size(), 2U);
    EXPECT_EQ(outcome.tried[1].degree_forward, 8);
    const auto bytes = [&](size_t run) { return outcome.tried[run].summary.number("peak_bytes", ""); };
    EXPECT_GT(bytes(0), 0);
    if (drops) {
      EXPECT_EQ(bytes(0), bytes(1));
    }
    for (const CaseRecord& record : outcome.tried) {
      EXPECT_EQ(record.summary.whole("tensors_made", ""), 0);
      EXPECT_GT(record.prediction.number("peak_bytes", ""), 0);
    }
  }
}

TEST(LayerRun, OverlapAndTasksStandBesideTheirPrediction) {
  LayerJob job = small_job(true);
  job.schedules = {&find_schedule("fsmoe"), &find_schedule("ds-moe")};
  const LayerOutcome outcome = run_layer_job(job, {});
  ASSERT_EQ(outcome.runs.size(), 2U);
  for (const auto& [record, plan, predicted, measured, rank, compared, packing] : outcome.runs) {
    // Undilated, by 8 at least here: interruptions lengthen it by less.
    const double over_predicted = record.summary.number("exposed_s", "") / record.prediction.number("exposed_s", "");
    EXPECT_GT(over_predicted, 0.5);
    EXPECT_LT(over_predicted, 4);
    EXPECT_GE(record.summary.number("worst_task_ratio", ""), 1 - 1e-6);  // none is faster than its pace
    EXPECT_GE(record.summary.number("ratio_forward_dispatch", ""), 1 - 1e-6);
    int tasks = 0;
    for (const measure::TaskComparison& row : compared) tasks += row.tasks;
    EXPECT_EQ(tasks, static_cast<int>(plan.tasks().size()));
  }
  const auto efficiency = [&](size_t run) {
    return outcome.runs[run].record.prediction.number("overlap_efficiency", "");
  };
  EXPECT_GT(efficiency(0), efficiency(1));
  EXPECT_NEAR(efficiency(1), 0, 1e-12);  // ds-moe runs one after the other
}

// The slices of a process of the trace, by task: start and end, in nanoseconds.
std::map<int, std::pair<int64_t, int64_t>> slices_of(const nlohmann::json& trace, int process) {
  std::map<int, std::pair<int64_t, int64_t>> slices;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("pid") != process) continue;
    const int64_t start = std::llround(event.at("ts").get<double>() * 1e3);
    slices[event.at("args").at("task")] = {start, start + std::llround(event.at("dur").get<double>() * 1e3)};
  }
  return slices;
}

TEST(LayerRun, ARecordsTimelineIsTheTraces) {
  for (const bool emulated : {true, false}) {
    LayerJob job = small_job(emulated);
    job.schedules = {&find_schedule("fsmoe"), &find_schedule("ds-moe")};
    const LayerOutcome outcome = run_layer_job(job, {});
    const Scratch scratch;
    const std::string path = scratch.path("trace.json");
    write_layer_trace(outcome, {.file = path});
    const auto trace = nlohmann::json::parse(std::ifstream(path));
    for (size_t s = 0; s < outcome.runs.size(); ++s) {
      const auto& [record, plan, predicted, measured, rank, tasks, packing] = outcome.runs[s];
      const MeasuredTimeline& timeline = record.measured_timeline;
      const int process = static_cast<int>(s * (measured.size() + 1)) + 1;  // of its first rank; simulated: the last
      const auto expected = slices_of(trace, process + rank);
      const auto simulated = slices_of(trace, process + static_cast<int>(measured.size()));
      ASSERT_EQ(timeline.tasks.size(), plan.tasks().size());
      EXPECT_TRUE(timeline.predicted);
      const auto rounded_to_ns = [](double seconds) -> int64_t { return std::llround(seconds * 1e9); };
      const int64_t shift =
          expected.at(0).first - rounded_to_ns(timeline.tasks[0].start_s);  // a trace has one clock for all
      const auto near = [](int64_t a, int64_t b) { return std::abs(a - b) <= 2; };
      for (const Task& task : plan.tasks()) {
        const MeasuredTask& found = timeline.tasks[task.id];
        EXPECT_EQ(found.kind, name_of(task.kind));
        EXPECT_EQ(found.phase, name_of(task.phase));
        EXPECT_EQ(found.lane, name_of(plan.structure->lanes[task.lane].kind));
        EXPECT_EQ((std::pair{found.chunk, found.chunks}), (std::pair{task.chunk, task.chunks}));
        EXPECT_PRED2(near, rounded_to_ns(found.start_s) + shift, expected.at(task.id).first);
        EXPECT_PRED2(near, rounded_to_ns(found.end_s) + shift, expected.at(task.id).second);
        EXPECT_EQ((std::pair{rounded_to_ns(found.predicted_start_s), rounded_to_ns(found.predicted_end_s)}),
                  simulated.at(task.id));
      }
      // It is a pass of the rank that was slowest in it: its end is one of the samples, and that rank's.
      double end_s = 0;
      for (const MeasuredTask& task : timeline.tasks) end_s = std::max(end_s, task.end_s);
      const auto is_the_pass = [&](const std::vector<double>& ranks) {
        return std::abs(ranks[timeline.rank] - end_s) < 1e-9 && ranks[timeline.rank] == std::ranges::max(ranks);
      };
      const auto total = std::ranges::find(record.samples, "total_s", &Samples::name);
      EXPECT_TRUE(std::ranges::any_of(total->values, is_the_pass));
      EXPECT_LT(to_json_line(record).size(), 20'000U);
    }
  }
}

TEST(LayerRun, SixPassesAreEnoughForTheMediansInterval) {
  LayerJob job = small_job(false);
  job.schedules = {&find_schedule("tutel")};
  for (const int passes : {5, 6}) {
    job.settings.iterations = passes;
    const Fields summary = run_layer_job(job, {}).runs[0].record.summary;
    ASSERT_EQ(summary.has("total_low_s"), passes == 6);
    ASSERT_EQ(summary.has("total_high_s"), passes == 6);
    if (passes < 6) continue;
    EXPECT_EQ(summary.number("total_low_s", ""), summary.number("least_total_s", ""));
    EXPECT_EQ(summary.number("total_high_s", ""), summary.number("most_total_s", ""));
  }
}

TEST(LayerRun, ALongTimelineIsNotRecorded) {
  LayerJob job = small_job(false);
  LayerShape layer = job.shape().layer;
  layer.seq = 512;
  job.model.shape = complete(layer, job.shape().parallel, Rounding::ragged);
  job.schedules.clear();
  job.tried = &find_schedule("fsmoe");
  job.tried_degrees = {1, 32};
  const LayerOutcome outcome = run_layer_job(job, {});
  ASSERT_EQ(outcome.tried.size(), 2U);
  EXPECT_FALSE(outcome.tried[0].measured_timeline.tasks.empty());
  EXPECT_TRUE(outcome.tried[1].measured_timeline.tasks.empty());
}

TEST(LayerRun, CheckOnlyTimesNothing) {
  LayerJob job = small_job(true);
  job.settings.check_only = true;
  const LayerOutcome outcome = run_layer_job(job, {});
  EXPECT_FALSE(was_timed(outcome));
  for (const ScheduleRun& run : outcome.runs) {
    const CaseRecord& record = run.record;
    EXPECT_EQ(record.status, CaseStatus::ok);
    EXPECT_TRUE(record.samples.empty());
    EXPECT_TRUE(record.measured_timeline.tasks.empty());
    EXPECT_FALSE(record.summary.has("total_s"));
  }
}

// Every schedule that can run a layer can be verified, whatever has no price: no row, no such group, no such type.
TEST(LayerRun, CheckOnlyNeedsNoPrice) {
  for (const bool emulated : {true, false}) {
    LayerJob job = small_job(emulated);
    job.settings.check_only = true;
    job.predicted_by = Profile();
    if (emulated) job.paced_by = Profile();
    job.model.shape.layer.dtype = DType::float64;
    int chunked = 0;
    const LayerOutcome outcome = run_layer_job(job, {});
    ASSERT_EQ(outcome.runs.size(), job.schedules.size());
    for (const ScheduleRun& run : outcome.runs) {
      const CaseRecord& record = run.record;
      if (record.status == CaseStatus::unsupported) {
        EXPECT_EQ(record.reason.find("profile"), std::string::npos) << record.key << ": " << record.reason;
        continue;
      }
      EXPECT_EQ(record.status, CaseStatus::ok) << record.key << ": " << record.reason;
      EXPECT_LT(record.summary.number("worst_error", ""), 1e-9);
      EXPECT_EQ(record.summary.text("planned_by", ""), "nominal");
      EXPECT_FALSE(record.prediction.has("total_s") || record.bound_s) << "nominal costs predict nothing";
      chunked += record.degree_forward > 1;
    }
    EXPECT_GT(chunked, 5) << "chunks are verified too";
  }
}

// One schedule that is refused, or was disturbed, does not make the others run again.
TEST(LayerRun, ALayerOfABrokenOffRunIsKnownUnlessItFailed) {
  const Scratch scratch;
  LayerJob job;
  job.name = "small";
  job.schedules = {&find_schedule("tutel"), &find_schedule("fsmoe")};
  for (const CaseStatus status :
       {CaseStatus::ok, CaseStatus::unsupported, CaseStatus::invalid, CaseStatus::oom, CaseStatus::error}) {
    const std::string path = scratch.path(fmt::format("{}.jsonl", name_of(status)));
    const RunInputs question{{{"moetune", "tune"}, {"tune"}}, {}, {}};
    LayerOutcome left = failed_layer_job(job, {}, CaseStatus::ok, "");
    left.runs[1].record.status = status;
    {
      RecordWriter writer(path, question);
      append(left, writer);
    }
    const auto known = recorded_outcome(job, RecordWriter(path, question));
    ASSERT_EQ(known.has_value(), status != CaseStatus::oom && status != CaseStatus::error) << name_of(status);
    if (known) {
      EXPECT_EQ(known->runs[1].record.status, status);
    }
  }
}

TEST(LayerRun, TheHostRunsUnpaced) {
  int ran = 0;
  for (const ScheduleRun& run : run_layer_job(small_job(false), {}).runs) {
    const CaseRecord& record = run.record;
    if (record.status == CaseStatus::unsupported) continue;  // the profile prices no AllReduce inside these nodes
    ++ran;
    EXPECT_EQ(record.status, CaseStatus::ok) << record.key << ": " << record.reason;
    EXPECT_FALSE(record.emulated);
    EXPECT_EQ(record.dilation, 1);
    EXPECT_FALSE(record.summary.has("overrun_share"));
    EXPECT_GT(record.summary.number("total_s", ""), record.summary.number("forward_s", ""));
  }
  EXPECT_GT(ran, 12);
}

TEST(LayerRun, PassesOnSlowCoresAreMadeAgainAndSaySo) {
  LayerJob job = small_job(false);
  job.schedules = {&find_schedule("tutel"), &find_schedule("ds-moe")};
  const auto repeats = [&](double best_s) {
    const size_t ranks = static_cast<size_t>(job.shape().parallel.ranks());
    job.settings.ranks.cores = std::make_shared<measure::CoreTimes>();
    job.settings.ranks.cores->add(std::vector(ranks, std::vector{best_s}));
    std::vector<int64_t> each;
    for (const ScheduleRun& run : run_layer_job(job, {}).runs) {
      EXPECT_EQ(run.record.summary.number("core_slowdown", "") > measure::kSlowCores, best_s < 1) << best_s;
      each.push_back(run.record.summary.whole("repeats", ""));
    }
    return each;
  };
  EXPECT_EQ(repeats(1e-12), (std::vector<int64_t>{2, 2})) << "no core is that fast again";
  EXPECT_EQ(repeats(1), (std::vector<int64_t>{0, 0}));
}

}  // namespace
}  // namespace moe::commands
