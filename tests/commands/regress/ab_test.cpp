// `ab` as its users call it, with programs that only say how long they took.
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "moe/base/check.h"
#include "moe/record/reader.h"
#include "moe/record/writer.h"
#include "tests/commands/cli/program_test.h"

namespace moe::regress {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct Told {
  std::string key;
  double seconds = 0.01;
  double peak_bytes = 1e6;
  CaseStatus status = CaseStatus::ok;
};

class Ab : public ProgramTest {
 protected:
  // A program that leaves these records, after `before` was run.
  void program(const std::string& name, const std::vector<Told>& cases, const std::string& before = "") {
    const std::string records = fmt::format("{}/{}.jsonl", folder_, name), path = folder_ + "/" + name;
    fs::remove(records);
    {
      RecordWriter writer(records, {});
      for (const Told& told : cases) {
        CaseRecord record;
        record.key = told.key;
        record.status = told.status;
        if (told.status != CaseStatus::ok) record.reason = "made up";
        record.backend = "none";
        record.samples = {{"total_s", {{told.seconds, 0.9 * told.seconds}, {told.seconds, told.seconds}}}};
        record.summary = {{"peak_bytes", told.peak_bytes}};
        writer.append(record);
      }
      writer.end();
    }
    std::ofstream(path) << "#!/bin/sh\necho \"$0 $*\" >> " << folder_ << "/launches\n"
                        << before << "\nwhile [ $# -gt 0 ]; do if [ \"$1\" = --out ]; then out=$2; fi; shift; done\ncp "
                        << records << " \"$out\"\n";
    fs::permissions(path, fs::perms::owner_all);
  }

  Printed ab(std::vector<std::string> flags, bool command = true) {
    flags.insert(flags.begin(), {"ab", "--base", "base", "--head", "head", "--quiet"});
    if (command) flags.insert(flags.end(), {"--", "bench", "--size", "1"});
    return run(flags);
  }
  size_t launches() const {
    std::ifstream in(folder_ + "/launches");
    return static_cast<size_t>(std::count(std::istreambuf_iterator<char>(in), {}, '\n'));
  }
};

TEST_F(Ab, EqualProgramsPassAfterTheFirstStage) {
  program("base", {{"a"}, {"b", 0.5}});
  program("head", {{"a"}, {"b", 0.5}});
  const Printed printed = ab({"--json"});
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  const Json json = Json::parse(printed.out);
  EXPECT_EQ(json["pairs"], 6);
  ASSERT_EQ(json["cases"].size(), 2U);
  for (const Json& c : json["cases"]) EXPECT_EQ(c["verdict"], "SAME");
  EXPECT_EQ(launches(), 14U);  // one of each to find the cases, six pairs
}

TEST_F(Ab, ASlowerCaseIsConfirmedAndNamed) {
  program("base", {{"a"}, {"b", 0.5}});
  program("head", {{"a"}, {"b", 0.54}});
  const Printed printed = ab({});
  EXPECT_EQ(printed.exit_code, 1) << printed.err;
  EXPECT_NE(printed.out.find("SLOW"), std::string::npos);
  EXPECT_NE(printed.out.find("+8.0 %"), std::string::npos);
  EXPECT_NE(printed.out.find("1 SLOW, 1 SAME"), std::string::npos) << printed.out;
}

TEST_F(Ab, FasterNeverFails) {
  program("base", {{"a", 0.02}});
  program("head", {{"a", 0.01}});
  const Printed printed = ab({"--strict", "--json"});
  EXPECT_EQ(printed.exit_code, 0);
  EXPECT_EQ(Json::parse(printed.out)["cases"][0]["verdict"], "FAST");
}

TEST_F(Ab, MemoryHasNoNoise) {
  program("base", {{"a", 0.01, 1e8}});
  program("head", {{"a", 0.01, 1.02e8}});
  const Printed printed = ab({});
  EXPECT_EQ(printed.exit_code, 1);
  EXPECT_NE(printed.out.find("memory SLOW: 95.4 -> 97.3 MiB"), std::string::npos) << printed.out;
  program("head", {{"a", 0.01, 1.005e8}});
  EXPECT_EQ(ab({}).exit_code, 0);
}

TEST_F(Ab, ALaunchThatDiesOrHangsIsFour) {
  program("base", {{"a"}});
  program("head", {{"a"}}, "echo 'out of luck' >&2; exit 3");
  const Printed died = ab({});
  EXPECT_EQ(died.exit_code, 4);
  EXPECT_NE(died.err.find("head: a launch ended with code 3 (out of luck): "), std::string::npos) << died.err;
  EXPECT_NE(died.err.find("bench --size 1"), std::string::npos);
  program("head", {{"a"}}, "sleep 60");
  const Printed hung = ab({"--timeout", "0.5"});
  EXPECT_EQ(hung.exit_code, 4);
  EXPECT_NE(hung.err.find("timed out after"), std::string::npos) << hung.err;
  // One in the middle of the gate.
  program("head", {{"a"}}, "[ $(wc -l < " + folder_ + "/launches) -lt 8 ] || exit 9");
  EXPECT_EQ(ab({}).exit_code, 4);
}

TEST_F(Ab, NothingComparedIsTwo) {
  program("base", {{"a"}});
  program("head", {});
  EXPECT_EQ(ab({}).exit_code, 2);
  program("head", {{"b"}});
  EXPECT_EQ(ab({}).exit_code, 2);
  EXPECT_EQ(ab({}, false).exit_code, 2);
  EXPECT_EQ(run_program(MOETUNE_PROGRAM, {"ab", "--base", "nowhere", "--", "x"}, folder_).exit_code, 2);
}

TEST_F(Ab, ACaseThatTheHeadFailsIsFour) {
  program("base", {{"a"}, {"b"}});
  program("head", {{"a"}, {"b", 0.01, 1e6, CaseStatus::unsupported}});
  const Printed printed = ab({});
  EXPECT_EQ(printed.exit_code, 4);
  EXPECT_NE(printed.out.find("b: the head fails: unsupported: made up"), std::string::npos) << printed.out;
}

TEST_F(Ab, CasesOfOneProgramAreListed) {
  program("base", {{"a"}, {"old"}});
  program("head", {{"a"}, {"new"}});
  const Printed printed = ab({});
  EXPECT_EQ(printed.exit_code, 4);
  EXPECT_NE(printed.out.find("old: the head fails: it is no longer run"), std::string::npos) << printed.out;
  EXPECT_NE(printed.out.find("only in the head: new"), std::string::npos);
  std::ofstream(folder_ + "/cases.toml")
      << "schema = 1\n[[launch]]\nname = \"l\"\ncommand = \"\"\"bench\n --size 1\"\"\"\n"
         "[[waiver]]\ncase = \"l/old\"\nreason = \"gone\"\nuntil = \"2999-01-01\"\n"
         "[[waiver]]\ncase = \"typo\"\nreason = \"r\"\nuntil = \"2999-01-01\"\n";
  const Printed waived = ab({"--cases", "./cases.toml"}, false);
  EXPECT_EQ(waived.exit_code, 0) << waived.err;
  EXPECT_NE(waived.out.find("waived: gone"), std::string::npos);
  EXPECT_NE(waived.out.find("typo: its waiver is unused, because there is no case of this name"), std::string::npos)
      << waived.out;
}

TEST_F(Ab, ACaseThatTheHeadLosesAfterTheFirstLaunchIsFour) {
  program("base", {{"a"}, {"b"}});
  program("head", {{"a"}, {"b"}});
  std::filesystem::rename(folder_ + "/head.jsonl", folder_ + "/whole.jsonl");
  program("head", {{"a"}, {"b", 0.01, 1e6, CaseStatus::error}},
          "if [ ! -e " + folder_ + "/once ]; then touch " + folder_ + "/once; mv " + folder_ + "/head.jsonl " +
              folder_ + "/broken.jsonl; cp " + folder_ + "/whole.jsonl " + folder_ + "/head.jsonl; else cp " + folder_ +
              "/broken.jsonl " + folder_ + "/head.jsonl; fi");
  const Printed printed = ab({});
  EXPECT_EQ(printed.exit_code, 4) << printed.out << printed.err;
  EXPECT_NE(printed.out.find("b: the head fails: 6 launches gave no time: error: made up"), std::string::npos)
      << printed.out;
}

TEST_F(Ab, HardwareThatTheHeadAloneMissesIsFour) {
  program("base", {{"a"}});
  program("head", {{"a"}}, "exit 77");
  EXPECT_EQ(ab({}).exit_code, 4);
}

TEST_F(Ab, AConstantSlowdownHasNoModes) {
  program("base", {{"a|b"}});
  program("head", {{"a|b", 0.011}});
  const Printed printed = ab({"--markdown"});
  EXPECT_EQ(printed.out.find("BIMODAL"), std::string::npos);
  EXPECT_NE(printed.out.find("| a\\|b |"), std::string::npos) << printed.out;
}

TEST_F(Ab, IgnoredSignalsStayIgnored) {
  program("base", {{"a"}}, "sleep 0.1");
  program("head", {{"a"}});
  const Printed printed =
      run_program("/bin/sh",
                  {"-c", "trap '' HUP; " MOETUNE_PROGRAM
                         " ab --base base --head head --quiet -- bench & sleep 0.5; kill -HUP $!; wait $!"},
                  folder_);
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
}

TEST_F(Ab, ASignalLeavesNoTemporaryFolder) {
  program("base", {{"a"}}, "sleep 0.2");
  program("head", {{"a"}}, "sleep 0.2");
  for (const auto& [signal, number] : {std::pair("TERM", 15), {"HUP", 1}}) {
    const std::string temporary = folder_ + "/temporary-" + signal;
    fs::create_directory(temporary);
    const std::string command =
        fmt::format("TMPDIR={} {} ab --base base --head head --quiet -- bench & sleep 0.5; ls {}; kill -{} $!; wait $!",
                    temporary, MOETUNE_PROGRAM, temporary, signal);
    const Printed printed = run_program("/bin/sh", {"-c", command}, folder_);
    EXPECT_EQ(printed.exit_code, 128 + number) << printed.err;
    EXPECT_NE(printed.out.find("moetune-"), std::string::npos) << "it was there";
    EXPECT_TRUE(fs::is_empty(temporary)) << signal;
  }
}

TEST_F(Ab, HardwareThatIsNotThereIsASkipUnlessDemanded) {
  program("base", {{"a"}}, "case \"$*\" in *cuda*) exit 77;; esac");
  program("head", {{"a"}}, "case \"$*\" in *cuda*) exit 77;; esac");
  const std::string gpu = "schema = 1\n[[launch]]\nname = \"gpu\"\ncommand = \"bench --device cuda\"\n";
  std::ofstream(folder_ + "/gpu.toml") << gpu;
  EXPECT_EQ(ab({"--cases", "./gpu.toml"}, false).exit_code, 77);
  std::ofstream(folder_ + "/gpu.toml") << gpu << "demanded = true\n";
  EXPECT_EQ(ab({"--cases", "./gpu.toml"}, false).exit_code, 4);
  std::ofstream(folder_ + "/gpu.toml") << gpu << "[[launch]]\nname = \"cpu\"\ncommand = \"bench\"\n";
  const Printed both = ab({"--cases", "./gpu.toml"}, false);
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_NE(both.out.find("because this machine lacks the hardware: gpu"), std::string::npos);
}

TEST_F(Ab, WaiversHoldUntilTheirDay) {
  program("base", {{"a"}});
  program("head", {{"a", 0.012}});
  const std::string list =
      "schema = 1\n[[launch]]\nname = \"l\"\ncommand = \"bench\"\n[[waiver]]\ncase = \"l/a\"\nreason = \"known\"\n";
  std::ofstream(folder_ + "/cases.toml") << list << "until = \"2999-12-31\"\n";
  const Printed waived = ab({"--cases", "./cases.toml"}, false);
  EXPECT_EQ(waived.exit_code, 0) << waived.out;
  EXPECT_NE(waived.out.find("waived: known"), std::string::npos);
  std::ofstream(folder_ + "/cases.toml") << list << "until = \"2020-01-01\"\n";
  const Printed ended = ab({"--cases", "./cases.toml"}, false);
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_NE(ended.out.find("its waiver has expired"), std::string::npos);
}

TEST_F(Ab, AGateThatWasBrokenOffGoesOn) {
  program("base", {{"a"}});
  program("head", {{"a"}}, "[ $(wc -l < " + folder_ + "/launches) -lt 9 ] || exit 9");
  EXPECT_EQ(ab({"--out", "gate.jsonl"}).exit_code, 4);
  const size_t before = launches();
  // The same program, which now ends well: its text may not change, since the question covers it.
  std::ofstream(folder_ + "/launches") << "";
  const Printed on = ab({"--out", "gate.jsonl"});
  EXPECT_TRUE(on.exit_code == 0 || on.exit_code == 4) << on.err;
  EXPECT_LT(launches(), before + 14);
  std::ofstream(folder_ + "/base", std::ios::app) << "# another program\n";
  EXPECT_EQ(ab({"--out", "gate.jsonl"}).exit_code, 2);
}

TEST_F(Ab, RecordsItsVerdicts) {
  program("base", {{"a"}, {"b"}});
  program("head", {{"a"}, {"b", 0.012}});
  EXPECT_EQ(ab({"--out", "gate.jsonl"}).exit_code, 1);
  std::map<std::string, std::string> verdicts;
  for (const CaseRecord& record : read_last_run(folder_ + "/gate.jsonl").cases)
    if (record.key.starts_with("ab/verdict/"))
      verdicts[record.key] = record.summary.text("verdict", record.key) +
                             fmt::format(" {:.3f}", record.summary.number("ratio", record.key));
  EXPECT_EQ(verdicts,
            (std::map<std::string, std::string>{{"ab/verdict/a", "SAME 1.000"}, {"ab/verdict/b", "SLOW 1.200"}}));
}

TEST_F(Ab, FlagsGoToTheirProgramAlone) {
  program("base", {{"a"}});
  program("head", {{"a"}});
  ab({"--head-flags", "--slow 'x y'", "--base-flags", "--plain"});
  std::ifstream in(folder_ + "/launches");
  for (std::string line; std::getline(in, line);) {
    EXPECT_EQ(line.find("--slow x y") != std::string::npos, line.find("head") < line.find("bench")) << line;
    EXPECT_EQ(line.find("--plain") != std::string::npos, line.find("base ") != std::string::npos) << line;
  }
}

TEST_F(Ab, OfAGridSuspectLayersAloneAreLaunchedAgain) {
  program("base", {{"run/a/fsmoe"}, {"run/b/fsmoe"}});
  program("head", {{"run/a/fsmoe"}, {"run/b/fsmoe", 0.02}});
  std::ofstream(folder_ + "/cases.toml") << "schema = 1\n[[launch]]\nname = \"l\"\ncommand = \"layerbench --grid g\"\n";
  EXPECT_EQ(ab({"--cases", "./cases.toml"}, false).exit_code, 1);
  std::ifstream in(folder_ + "/launches");
  int all = 0, some = 0;
  for (std::string line; std::getline(in, line);) {
    const bool only = line.find("--only b --out") != std::string::npos;
    EXPECT_EQ(only, line.find("--only") != std::string::npos) << line;
    ++(only ? some : all);
  }
  EXPECT_EQ(all, 14);
  EXPECT_GE(some, 24);
}

TEST_F(Ab, PrintsMarkdown) {
  program("base", {{"a"}});
  program("head", {{"a", 0.02}});
  const Printed printed = ab({"--markdown"});
  EXPECT_EQ(printed.exit_code, 1);
  EXPECT_NE(printed.out.find("| a | 10.000 | 20.000 | +100.0 % |"), std::string::npos) << printed.out;
}

TEST_F(Ab, SelfTestOfAQuietProgramFindsNothing) {
  program("base", {{"a"}, {"b", 0.5}});
  const Printed printed = run_program(
      MOETUNE_PROGRAM,
      {"self-test", "--base", "base", "--gates", "2", "--resamples", "50", "--json", "--quiet", "--", "bench"},
      folder_);
  ASSERT_EQ(printed.exit_code, 0) << printed.err;
  const Json json = Json::parse(printed.out);
  EXPECT_EQ(json["live_gates"], 2);
  EXPECT_EQ(json["live_slow"], 0);
  EXPECT_EQ(json["sessions"], 1);
  for (const Json& gate : json["gates"]) {
    EXPECT_EQ(gate["any_slow"]["of"], 50);
    if (gate["injected"] == "+10 % of a case") {
      EXPECT_EQ(gate["found"]["share"], 1.0);
    }
  }
  EXPECT_EQ(Json::parse(run_program(MOETUNE_PROGRAM,
                                    {"self-test", "--base", "base", "--gates", "2", "--resamples", "50", "--json",
                                     "--quiet", "--", "bench"},
                                    folder_)
                            .out)["sessions"],
            2);
}

}  // namespace
}  // namespace moe::regress
