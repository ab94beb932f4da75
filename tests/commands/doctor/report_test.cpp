// The whole report of a machine that is made up, as text and as JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "commands/doctor/doctor.h"
#include "tests/commands/doctor/found.h"

namespace moe::doctor {
namespace {

using Json = nlohmann::json;

class ReportTest : public testing::Test {
 protected:
  Report report() const {
    return examine({machine_.files(), environment_, ClockState{true, 0, 0}, nullptr, [] {}});
  }
  MadeUpMachine machine_;
  Environment environment_;
};

size_t lines(const std::string& text) { return static_cast<size_t>(std::ranges::count(text, '\n')); }

TEST_F(ReportTest, AreasStandTogetherAndWarningsFirst) {
  environment_ = {{"NCCL_ALGO", "Ring"}, {"NCCL_DEBUG", "INFO"}};
  machine_.write("/sys/class/net/eth0/operstate", "up");
  machine_.write("/sys/class/net/eth0/speed", "1000");
  const Findings all = report().findings;
  ASSERT_GE(all.size(), 10u);
  EXPECT_EQ(all[0].found, "NCCL_DEBUG = INFO");
  EXPECT_EQ(all[1].found, "NCCL_ALGO = Ring");
  std::vector<std::string> areas;
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == 0 || all[i].area != all[i - 1].area) areas.push_back(all[i].area);
    if (i > 0 && all[i].area == all[i - 1].area) {
      EXPECT_LE(all[i].level, all[i - 1].level) << all[i].found;
    }
  }
  EXPECT_EQ(std::ranges::count(areas, "cpu"), 1);
  EXPECT_LT(std::ranges::find(areas, "network"), std::ranges::find(areas, "cpu")) << "a note before what is fine";
}

TEST_F(ReportTest, TextShowsWhatIsFineOnlyIfAsked) {
  environment_ = {{"NCCL_DEBUG", "INFO"}};
  const std::string text = text_of(report(), false), whole = text_of(report(), true);
  EXPECT_NE(text.find("NCCL writes a log while it works"), std::string::npos) << text;
  EXPECT_NE(text.find("unset NCCL_DEBUG"), std::string::npos) << text;
  EXPECT_EQ(text.find("no governor"), std::string::npos) << text;
  EXPECT_NE(whole.find("no governor"), std::string::npos) << whole;
  EXPECT_TRUE(text.starts_with("machine " + report().machine.text("fingerprint", "")));
  EXPECT_NE(text.find("\nwarnings: 1, "), std::string::npos) << text;
}

TEST_F(ReportTest, TextIsAScreenWhateverIsWrong) {
  for (int i = 0; i < 60; ++i) environment_.emplace(fmt::format("MKL_OF_ANOTHER_YEAR_{}", i), "1");
  for (const char* name :
       {"NCCL_DEBUG", "NCCL_CHECK_POINTERS", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE",
        "CUDA_LAUNCH_BLOCKING", "TORCH_DISTRIBUTED_DEBUG", "MKL_VERBOSE", "ONEDNN_VERBOSE", "DNNL_VERBOSE",
        "TORCH_CPP_LOG_LEVEL", "OMP_DYNAMIC", "TORCH_NCCL_BLOCKING_WAIT"})
    environment_.emplace(name, "1");
  const std::string text = text_of(report(), false);
  EXPECT_LE(lines(text), 41u) << text;
  EXPECT_NE(text.find(" more (--all)"), std::string::npos) << text;
  EXPECT_GT(lines(text_of(report(), true)), 80u);
}

TEST_F(ReportTest, JsonIsOneDocumentWithEverything) {
  environment_ = {{"NCCL_DEBUG", "INFO"}};
  machine_.write("/proc/loadavg", "0.5 0 0 1/2 3");
  machine_.write("/proc/cpuinfo", "model name : \xff CPU");
  const Report all = report();
  const Json json = Json::parse(json_of(all));
  EXPECT_EQ(json["fingerprint"], all.machine.text("fingerprint", ""));
  EXPECT_EQ(json["machine"]["cores"], 1);
  EXPECT_EQ(json["conditions"]["load1"], 0.5);
  EXPECT_EQ(json["warnings"], std::ranges::count(all.findings, Level::warn, &Finding::level));
  ASSERT_EQ(json["findings"].size(), all.findings.size());
  EXPECT_EQ(json["findings"][0]["level"], "warn");
  for (const Json& one : json["findings"])
    for (const char* key : {"level", "area", "found", "meaning", "command"}) EXPECT_TRUE(one[key].is_string()) << key;
}

TEST_F(ReportTest, EveryFindingFitsItsLine) {
  machine_.write("/proc/cpuinfo", "flags : hypervisor");
  machine_.write("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never");
  machine_.write("/sys/devices/system/node/node0/cpulist", "0");
  machine_.write("/sys/devices/system/node/node1/cpulist", "1");
  machine_.write("/sys/devices/system/cpu/cpufreq/boost", "1");
  for (const Finding& one : report().findings) {
    EXPECT_LE(one.meaning.size(), 56u) << one.meaning;
    EXPECT_FALSE(one.found.empty());
  }
}

}  // namespace
}  // namespace moe::doctor
