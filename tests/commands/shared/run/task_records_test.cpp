// A layer's own tasks, measured, fitted and priced.
#include "commands/shared/run/task_records.h"

#include <gtest/gtest.h>
#include <map>
#include <set>

#include "commands/shared/run/layer_run.h"
#include "commands/shared/run/op_records.h"
#include "moe/prices/fit.h"
#include "moe/train/token_source.h"
#include "tests/base/scratch.h"
#include "tests/schedule/any_decision.h"

namespace moe::commands {
namespace {

LayerJob host_job(std::initializer_list<std::string_view> schedules) {
  LayerJob job;
  job.name = "small";
  const LayerShape layer{.batch = 1, .seq = 32, .model_dim = 32, .hidden = 64, .heads = 4, .experts = 2, .top_k = 1};
  job.model.shape = complete(layer, {.nodes = 2, .ranks_per_node = 2}, Rounding::ragged);
  for (const std::string_view name : schedules) job.schedules.push_back(&find_schedule(name));
  job.settings.emulated = false;
  job.settings.iterations = 2;
  return job;
}

std::string op_of(const CaseRecord& record) { return record.parameters.text("op", record.key); }

TEST(TaskRecords, PriceEveryTaskOfAPlan) {
  const Scratch scratch;
  const Target host = target_of("host", {});
  RecordWriter writer(scratch.path("r.jsonl"));
  const LayerJob job = host_job({"fsmoe", "parm"});
  const std::vector<CaseRecord> records = measure_tasks(host, job, writer);
  ASSERT_FALSE(records.empty());
  const Profile profile = fit_profile(records, "host", "a test").profile;
  // Nothing but what was measured: no GEMM, no copy, nothing borrowed.
  for (const std::string_view name : {"ds-moe", "tutel", "fsmoe", "parm-s1"}) {
    const LayerPricer pricer(profile, job.shape());
    const Plan plan = build_plan(find_schedule(name), job.shape(), {});
    const std::vector<double> seconds = price(pricer, plan);
    for (const Task& task : plan.tasks()) EXPECT_GT(seconds[task.id], 0) << name << ": " << task.name();
    for (const PriceNote& note : pricer.notes())
      EXPECT_EQ(note.kind, PriceNote::Kind::weak) << name << ": " << note.text();
  }
}

// Every rank of a ring sends to one other rank.
TEST(TaskRecords, PriceTheSendsOfARing) {
  const Scratch scratch;
  RecordWriter writer(scratch.path("r.jsonl"));
  LayerJob job = host_job({"tutel"});
  ParallelShape parallel{.nodes = 2, .ranks_per_node = 2, .mp = 1, .cp = 4, .cp_exchange = CpExchange::ring};
  job.model.shape = complete(job.shape().layer, parallel, Rounding::ragged);
  const std::vector<CaseRecord> records = measure_tasks(target_of("host", {}), job, writer);
  for (const CaseRecord& record : records) {
    if (op_of(record) != "sendrecv") continue;
    EXPECT_EQ(record.parameters.whole("ranks", record.key), 2);
  }
  const Profile profile = fit_profile(records, "host", "a test").profile;
  const LayerPricer pricer(profile, job.shape());
  const Plan plan = build_plan(find_schedule("tutel"), job.shape(), {});
  const std::vector<double> seconds = price(pricer, plan);
  int sends = 0;
  for (const Task& task : plan.tasks()) {
    EXPECT_GT(seconds[task.id], 0) << task.name();
    sends += task.kind == TaskKind::cp_send || task.kind == TaskKind::cp_gradient_send;
  }
  EXPECT_GT(sends, 0);
}

// Squares are measured at one size, an optimizer's task at several: both take longer of a larger model.
TEST(TaskRecords, PriceEveryTaskOfAModel) {
  const std::unique_ptr<TokenSource> text = make_markov_source({.order = 1, .alphabet = 16, .seed = 3});
  for (const bool tied : {false, true}) {
    SCOPED_TRACE(tied ? "tied" : "with a dense layer, ZeRO 1");
    const Scratch scratch;
    RecordWriter writer(scratch.path("r.jsonl"));
    LayerJob job = host_job({"fsmoe"});
    job.model.shape.parallel.zero = tied ? 0 : 1;
    job.model.layers = 4;
    job.model.micro_batches = 2;
    job.model.step = {true, true, OptimizerKind::adamw, tied};
    add_end_tasks(job.model, 300);
    if (!tied) job.model.dense = {{{false, true, false, false}}, 64};
    job.settings.training.text = text.get();
    const std::vector<CaseRecord> records = measure_tasks(target_of("host", {}), profiled({job}).front(), writer);
    ASSERT_FALSE(records.empty());
    std::map<int64_t, int> sums;  // by bytes
    for (const CaseRecord& record : records)
      if (op_of(record) == "allreduce") ++sums[static_cast<int64_t>(record.parameters.number("bytes", record.key))];
    EXPECT_GE(sums.size(), 4U) << "one size of sums or two";
    const Profile profile = fit_profile(records, "host", "a test").profile;
    std::map<int, double> squares, optimizers;  // by layers
    for (const int layers : {2, 4}) {
      job.model.layers = layers;
      const LayerPricer pricer(profile, job.shape());
      ModelDecision decision;
      decision.backwards.resize(layers);
      const Plan plan = build_model_plan(find_schedule("fsmoe"), job.model, decision);
      const std::vector<double> seconds = price(pricer, plan);
      for (const Task& task : plan.tasks()) {
        const double s = seconds[task.id];
        const bool gathers = gathers_weights(task.kind);  // by what microbench measures
        EXPECT_TRUE(s > 0 || gathers) << task.name();
        if (task.kind == TaskKind::squares) squares[layers] += s;
        if (task.kind == TaskKind::optimizer) optimizers[layers] += s;
      }
    }
    EXPECT_GT(squares[4], 1.1 * squares[2]);
    EXPECT_GT(optimizers[4], 1.1 * optimizers[2]);
  }
}

TEST(TaskRecords, AreOfEveryDegreeAndHaveTheirTermsOrBytes) {
  const Scratch scratch;
  RecordWriter writer(scratch.path("r.jsonl"));
  const LayerJob job = host_job({"ds-moe", "tutel"});
  std::set<std::string> keys;
  std::set<double> dispatched;
  for (const CaseRecord& record : measure_tasks(target_of("host", {}), job, writer)) {
    EXPECT_TRUE(keys.insert(record.key).second) << record.key;
    EXPECT_GT(record.summary.number("median_s", record.key), 0);
    EXPECT_GE(record.summary.number("core_slowdown", record.key), 1);
    EXPECT_TRUE(record.parameters.has(op_of(record) == "task" ? "call" : "bytes")) << record.key;
    if (op_of(record) == "alltoall") dispatched.insert(record.parameters.number("bytes", record.key));
  }
  for (const int degree : kProfiledDegrees) {
    EXPECT_TRUE(keys.contains(fmt::format("task/small/fsmoe/r{}/forward/dispatch", degree)));
    EXPECT_TRUE(keys.contains(fmt::format("task/small/fsmoe/r{}/backward/expert", degree)));
  }
  EXPECT_EQ(dispatched.size(), kProfiledDegrees.size());
  EXPECT_FALSE(keys.contains("task/small/ds-moe/r1/forward/expert"));  // of fsmoe's flow, which has degrees
}

TEST(TaskRecords, AreTakenFromARunThatWasBrokenOff) {
  const Scratch scratch;
  const Target host = target_of("host", {});
  const std::string path = scratch.path("r.jsonl");
  const LayerJob job = host_job({"tutel"});
  std::vector<CaseRecord> first, second;
  {
    RecordWriter writer = host.open_records(path, {}, {});
    first = measure_tasks(host, job, writer);
  }
  RecordWriter writer = host.open_records(path, {}, {});
  EXPECT_TRUE(writer.resumed());
  second = measure_tasks(host, job, writer);
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].key, second[i].key);
    EXPECT_EQ(first[i].summary.number("median_s", ""), second[i].summary.number("median_s", ""));
  }
}

TEST(TaskRecords, OfALayerThatCannotRunThereAreNone) {
  const Scratch scratch;
  RecordWriter writer(scratch.path("r.jsonl"));
  LayerJob job = host_job({"tutel"});
  job.model.shape.rounding = Rounding::exact;
  EXPECT_TRUE(measure_tasks(target_of("host", {}), job, writer).empty());
}

TEST(TaskRecords, SomeLayersStandForAll) {
  std::vector<LayerJob> jobs;
  for (int64_t seq = 16; seq <= 320; seq += 16) {
    jobs.push_back(host_job({"tutel"}));
    jobs.back().model.shape.layer.seq = seq;
    jobs.back().model.layers = 3;
    jobs.back().model.micro_batches = 2;
    add_end_tasks(jobs.back().model, 100);
  }
  const std::vector<LayerJob> some = profiled(jobs);
  EXPECT_EQ(some.size(), static_cast<size_t>(kProfiledLayers));
  for (const LayerJob& job : some) {
    EXPECT_EQ(job.model.layers, 2);
    EXPECT_EQ(job.model.vocabulary, 100) << "its ends are measured too";
  }
  EXPECT_EQ(profiled({jobs.front()}).size(), 1U);
}

LayerJob staged_job(int stages) {
  LayerJob job = host_job({"fsmoe", "ds-moe"});
  job.model.shape =
      complete(job.shape().layer, {.nodes = 2, .ranks_per_node = 2, .mp = 1, .pp = stages}, Rounding::ragged);
  job.model.layers = 4;
  job.model.micro_batches = 2;
  return job;
}

// Pipelines of two and of four stages on 2 x 2 threads: what was measured prices every task, none by another's row.
TEST(TaskRecords, AndSendsPriceStages) {
  for (const int stages : {2, 4}) {
    const Scratch scratch;
    RecordWriter writer(scratch.path("r.jsonl"));
    const LayerJob job = staged_job(stages);
    OpRequest request;
    request.settings.repetitions = 2;
    request.sizes = {.begin = 1 << 12, .end = 1 << 20, .factor = 16};  // growth that no other load hides
    const Profile fitted = measure_and_fit(target_of("host", {}), writer, request, {job}, [](double) {}).profile;
    std::set<std::string> rows;
    for (const CommRow& row : fitted.comm) rows.insert(row_name(row));
    for (const char* row : {"sendrecv inter 2", "sendrecv intra 2"}) EXPECT_TRUE(rows.contains(row)) << row;
    EXPECT_EQ(rows.contains("allreduce intra 2"), stages == 2) << "the gradients of a stage's two ranks";
    const Plan plan = plan_nominally(job, find_schedule("fsmoe"), 1).run.plan;
    const LayerPricer pricer(fitted, job.shape());
    const std::vector<double> seconds = price(pricer, plan);
    int sends = 0;
    for (const Task& task : plan.tasks()) {
      const bool is_free = task.kind == TaskKind::recv || task.kind == TaskKind::optimizer;
      EXPECT_TRUE(is_free || seconds[task.id] > 0) << task.name();
      sends += task.kind == TaskKind::send;
    }
    EXPECT_EQ(sends, 2 * 2 * (stages - 1)) << "each micro-batch there and back over each boundary";
    for (const PriceNote& note : pricer.notes())
      EXPECT_FALSE(note.kind == PriceNote::Kind::not_priced || note.kind == PriceNote::Kind::nearest) << note.text();
  }
}

// Nothing is measured for a layer that no schedule can run.
TEST(MeasureAndFit, RefusesFirstWhatCanNotBePriced) {
  const Scratch scratch;
  RecordWriter writer(scratch.path("r.jsonl"));
  LayerJob job = host_job({"fsmoe", "tutel"});
  job.model.shape.layer.node_limit = 1;
  EXPECT_THROW(measure_and_fit(target_of("host", {}), writer, {}, {job}, [](double) { FAIL() << "it measured"; }),
               Unsupported);
  EXPECT_EQ(writer.done(), 0U);
}

}  // namespace
}  // namespace moe::commands
