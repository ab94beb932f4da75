// The layers whose tasks are a GPU's modules.
#include "commands/shared/run/module_jobs.h"

#include <gtest/gtest.h>
#include <set>

#include "moe/base/check.h"
#include "moe/train/token_source.h"

namespace moe::commands {
namespace {

std::vector<LayerJob> jobs_of(const std::string& asked, DType dtype = DType::bfloat16) {
  static const std::unique_ptr<TokenSource> text = make_markov_source({});
  static const Target host = target_of("host", {.device = DeviceKind::cuda});
  return module_jobs(host, asked, dtype, *text);
}

TEST(ModuleJobs, SweepWidthsLengthsAndExperts) {
  std::set<std::string> names;
  std::set<int64_t> widths, lengths, experts, hidden, rows, vocabularies;
  std::set<bool> causal;
  std::set<std::string_view> ffns;
  for (const LayerJob& job : jobs_of("all")) {
    const LayerShape& layer = job.shape().layer;
    EXPECT_TRUE(names.insert(job.name).second) << job.name;
    EXPECT_EQ(job.shape().parallel.ranks(), 1);
    EXPECT_EQ(layer.dtype, DType::bfloat16);
    EXPECT_EQ(layer.batch * layer.seq, 4096);
    widths.insert(layer.model_dim / layer.heads);
    lengths.insert(layer.seq);
    experts.insert(layer.experts);
    hidden.insert(layer.hidden);
    rows.insert(layer.batch * layer.seq * layer.top_k / layer.experts);
    causal.insert(layer.causal);
    ffns.insert(name_of(layer.ffn));
    if (job.model.vocabulary > 0) vocabularies.insert(job.model.vocabulary);
  }
  EXPECT_EQ(widths, (std::set<int64_t>{64, 128, 256}));
  EXPECT_EQ(lengths, (std::set<int64_t>{512, 1024, 2048, 4096}));
  EXPECT_EQ(causal, (std::set{false, true}));
  EXPECT_GE(experts.size(), 4U);
  EXPECT_GE(hidden.size(), 4U);
  EXPECT_GE(rows.size(), 4U);
  EXPECT_EQ(vocabularies.size(), 2U) << "the head's row has a line";
  EXPECT_EQ(ffns, (std::set<std::string_view>{"gpt", "mixtral", "mixtral-fp8"}));
}

// Each row needs several sizes of every kind of attention and of experts.
TEST(ModuleJobs, HaveSeveralSizesOfEachRow) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    std::map<std::string, std::set<std::string>> shapes;
    for (const LayerJob& job : jobs_of("all", dtype)) {
      shapes[task_row_name(TaskKind::attention, job.shape())].insert(
          fmt::format("{} {}", job.shape().layer.model_dim / job.shape().layer.heads, job.shape().layer.seq));
      shapes[task_row_name(TaskKind::expert, job.shape())].insert(describe(job.shape().layer));
    }
    EXPECT_EQ(shapes.contains("expert:mixtral-fp8"), dtype != DType::float32);
    for (const auto& [row, sizes] : shapes) EXPECT_GE(sizes.size(), 3U) << row;
  }
}

TEST(ModuleJobs, OfAModelAreItsLayerAndItsEnds) {
  const std::vector<LayerJob> jobs = jobs_of("qwen3-30b-a3b,deepseek-v3");
  std::vector<std::string> names;
  for (const LayerJob& job : jobs) names.push_back(job.name);
  EXPECT_EQ(names, (std::vector<std::string>{"qwen3-30b-a3b-L4096", "qwen3-30b-a3b-L1024", "qwen3-30b-a3b-ends",
                                             "deepseek-v3-L4096", "deepseek-v3-L1024", "deepseek-v3-ends"}));
  EXPECT_EQ(jobs[0].shape().layer.head_dim, 128);
  EXPECT_EQ(jobs[0].shape().layer.experts, kMaxExpertsAlone);
  EXPECT_EQ(jobs[0].shape().layer.top_k, 8);
  EXPECT_EQ(jobs[2].model.vocabulary, 151936);
  EXPECT_TRUE(jobs[2].model.dense.has_none(jobs[2].model.layers));
  EXPECT_EQ(jobs[5].model.dense.hidden, 18432);
  EXPECT_THROW(jobs_of("gpt-5"), BadInput);
}

}  // namespace
}  // namespace moe::commands
