// The verbs that keep performance from regressing.
#include "cli/flag_kinds.h"

namespace moe::cli {
namespace {

void add_base(CLI::App& verb, std::string& base) {
  add_text(verb, "--base", "FOLDER", base, "a checkout, build folder or program of moetune; default: this one");
}

// Adds what a gate launches, and how.
template <class Options>
void add_launches(CLI::App& verb, Options& o) {
  add_text(verb, "--cases", "CASES|FILE", o.cases, "command lines to run (configs/ci/), in the place of -- VERB");
  begin_group(verb, kHow);
  add_text(verb, "--launcher", "WORDS", o.launcher, "what stands before the program: 'mpirun -np 2'");
  add_number(verb, "--delta", o.delta_percent, "percent that a case must be slower by, at least; default: 3",
             {0.01, 100});
  add_number(verb, "--seed", o.seed, "seed of the order of launches, and of what is drawn", {0, 9e18});
  add_number(verb, "--timeout", o.timeout_s, "seconds a launch may take; default: 20 times the first, at least 60",
             {0.1, 86400});
}

void add_filter(CLI::App& verb, std::vector<std::string>& filter) {
  verb.add_option("--filter", filter, "these cases alone: of a parameter, or schedule, one of the values")
      ->type_name("KEY=VALUE[,..]")
      ->delimiter(',');
}

void add_floor(CLI::App& verb, std::string& floor) {
  add_text(verb, "--floor", "FILE", floor, "records of self-test on this machine; default: results/self-test.jsonl");
}

}  // namespace

void add_ab(CLI::App& app, Command& c) {
  regress::AbOptions& o = c.ab;
  CLI::App* verb = add_verb(app, "ab", "tell whether one build, or one set of flags, is slower than another",
                            " --base ../before --head . -- layerbench --cluster host --no-predict --schedule fsmoe "
                            "--degree-forward 2 --degree-backward 2");
  add_base(*verb, o.base);
  add_text(*verb, "--head", "FOLDER", o.head, "what is compared with it; default: the base");
  add_text(*verb, "--base-flags", "FLAGS", o.base_flags, "added to the command line of the base");
  add_text(*verb, "--head-flags", "FLAGS", o.head_flags, "added to the command line of the head");
  add_launches(*verb, o);
  add_floor(*verb, o.floor);
  verb->add_flag("--strict", o.strict, "exit code 5 where a case is ambiguous and none is slower");
  begin_group(*verb, kOutput);
  add_records(*verb, o.out, "records of all launches; default: results/ab.jsonl");
  verb->add_flag("--markdown", o.markdown, "a table for a pull request, in the place of text");
  add_json(*verb, o.json);
  verb->get_option("--markdown")->excludes("--json");
}

void add_self_test(CLI::App& app, Command& c) {
  regress::SelfTestOptions& o = c.self_test;
  CLI::App* verb = add_verb(app, "self-test",
                            "measure how often ab is wrong on this machine, and the smallest slowdown that it finds",
                            " --cases tiny");
  add_base(*verb, o.base);
  add_launches(*verb, o);
  add_number(*verb, "--gates", o.gates, "live gates that compare the program with itself; default: 10", {1, 1000});
  add_number(*verb, "--resamples", o.resamples, "gates made of the recorded launches, a row; default: 2000", {1, 1e7});
  verb->add_flag("--simulate", o.simulate, "launch nothing: the rule beside three others, on made-up machines");
  begin_group(*verb, kOutput);
  add_records(*verb, o.out, "records of all launches, and the floor; default: results/self-test.jsonl");
  add_json(*verb, o.json);
  stands_alone(*verb, "--simulate", {"--delta", "--seed", "--resamples", "--json"});
}

void add_compare(CLI::App& app, Command& c) {
  regress::CompareOptions& o = c.compare;
  CLI::App* verb = add_verb(app, "compare", "compare records that were measured before and after a change",
                            " before.jsonl after.jsonl");
  verb->add_option("BASE", o.base, "records, or a folder of them")->type_name("")->required();
  verb->add_option("HEAD", o.head, "the same of the change")->type_name("")->required();
  add_filter(*verb, o.filter);
  begin_group(*verb, kHow);
  add_text(*verb, "--by", "NAME", o.by, "geometric means by a parameter, or schedule");
  add_floor(*verb, o.floor);
  verb->add_flag("--strict", o.strict, "exit code 5 where a case is ambiguous and none slower");
  begin_group(*verb, kOutput);
  verb->add_flag("--all", o.all, "cases that are the same too, and every name");
  verb->add_flag("--markdown", o.markdown, "for the comment of a pull request");
  add_json(*verb, o.json);
  for (const char* flag : {"--all", "--markdown"}) verb->get_option("--json")->excludes(verb->get_option(flag));
}

void add_history(CLI::App& app, Command& c) {
  regress::HistoryOptions& o = c.history;
  CLI::App* verb = add_verb(app, "history", "find the changes in records of many commits", " results");
  verb->add_option("DIR", o.folder, "any *.jsonl below it")->type_name("")->required();
  add_filter(*verb, o.filter);
  begin_group(*verb, kHow);
  add_text(*verb, "--by", "NAME", o.by, "a series of each value of a parameter, schedule or key");
  begin_group(*verb, kOutput);
  add_text(*verb, "--plot", "FILE", o.plot, "draw the series (.svg, .png)");
  add_json(*verb, o.json);
}

void complete_gate(Command& c, std::vector<std::string> words) {
  (c.verb == "ab" ? c.ab.command : c.self_test.command) = std::move(words);
}

}  // namespace moe::cli
