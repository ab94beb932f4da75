#include "tests/rules/source_rules.h"

#include <gtest/gtest.h>

#include "tests/rules/tree.h"

namespace moe::rules {
namespace {

TEST(SourceRules, HoldInTheWholeTree) {
  const std::vector<TreeFile> files = tree_files();
  for (const TreeFile& file : files)
    for (const auto& violation : violations(file.path, file.text)) ADD_FAILURE() << violation;
  EXPECT_GT(files.size(), 30u) << "the tree was not read";
}

struct Case {
  std::string path, line;
};

TEST(SourceRules, ReportEachKindOfViolation) {
  const Case cases[] = {
      {"moe/plan/task.h", "#include \"moe/cost/profile.h\""},
      {"moe/base/check.h", "  #  include \"moe/record/record.h\""},
      {"moe/export/trace.cpp", "#include \"moe/device/stream.h\""},
      {"moe/measure/verify.cpp", "#include \"tuner/tune.h\""},
      {"tuner/tune.cpp", "#include \"layerbench/run.h\""},
      {"tuner/tune.cpp", "#include \"cli/flags.h\""},
      {"verbs/sweep.cpp", "#include \"verbs/run/target.h\""},
      {"moe/measure/modules/module_run.cpp", "#include \"verbs/selection.h\""},
      {"layerbench/run.cpp", "#include \"tests/layer/case.h\""},
      {"moe/plan/task.h", "#include \"task_id.h\""},
      {"moe/plan/task.h", "#include \"moe/planning/task_id.h\""},
      {"moe/plans/task.h", "#include <vector>"},
      {"moe/exec/executor.cpp", "#include <torch/torch.h>"},
      {"moe/tensor/tensor_view.h", "#include <ATen/ATen.h>"},
      {"moe/comm/local/world.cpp", "#include <c10/util/Exception.h>"},
      {"tests/exec/executor_test.cpp", "#include \"ATen/ATen.h\""},
      {"moe/device/cpu/stream.cpp", "#include <cuda_runtime.h>"},
      {"moe/comm/local/world.cpp", "#include <nccl.h>"},
      {"moe/base/utils.h", ""},
      {"tuner/tune.cpp", "  std::ofstream out(path);"},
      {"moe/base/out_file.cpp", "  bad_input(\"--out: found {}\", out);"},
      {"moe/base/check.h", std::string(121, 'x')},
      {"README.md", std::string(121, 'x')},
  };
  for (const auto& [path, line] : cases) {
    EXPECT_EQ(violations(path, "// first\n" + line + "\n").size(), 1u) << path << ": " << line;
  }
  EXPECT_EQ(violations("moe/base/check.h", "#pragma once\n#include <cuda.h>\n").at(0).substr(0, 19),
            "moe/base/check.h:2:");
  std::string text;
  for (int i = 0; i < 351; ++i) text += "\n";
  EXPECT_EQ(violations("moe/base/check.h", text).size(), 1u);
}

TEST(SourceRules, AcceptWhatIsAllowed) {
  std::string e_acute = "\xC3\xA9", wide;
  for (int i = 0; i < 120; ++i) wide += e_acute;
  const Case cases[] = {
      {"moe/cost/simulate.cpp", "#include \"moe/plan/plan.h\""},
      {"moe/cost/simulate.cpp", "#include \"moe/cost/profile.h\""},
      {"moe/comm/local/world.cpp", "#include \"moe/comm/communicator.h\""},
      {"tuner/tune.cpp", "#include \"tuner/tune.h\""},
      {"tuner/verify/verified_tune.cpp", "#include \"verbs/run/target.h\""},
      {"verbs/run/target.cpp", "#include \"verbs/selection.h\""},
      {"cli/main.cpp", "#include \"tuner/tune.h\""},
      {"tests/plan/plan_test.cpp", "#include \"cli/flags.h\""},
      {"moe/tensor/cpu/gemm.cpp", "#include <ATen/ATen.h>"},
      {"moe/comm/gloo/group.cpp", "#include <torch/csrc/distributed/c10d/Backend.hpp>"},
      {"moe/layer/gates/cuda/top_k.cu", "#include <cuda_runtime.h>"},
      {"moe/comm/nccl/world.cpp", "#include <nccl.h>"},
      {"moe/plan/task.h", "// #include \"moe/cost/profile.h\""},
      {"moe/base/check.h", wide},
      {"tests/tuner/tune_test.cpp", "  std::ofstream out(path);"},
      {"tuner/tune.cpp", "  bad_input(\"--out: found {}\", out);"},
      {"moe/base/words.cpp", "  if (word.starts_with(\"--\")) --first;"},
  };
  for (const auto& [path, line] : cases) {
    EXPECT_TRUE(violations(path, line + "\n").empty()) << path << ": " << line;
  }
}

}  // namespace
}  // namespace moe::rules
