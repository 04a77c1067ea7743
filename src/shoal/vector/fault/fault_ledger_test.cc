#include "shoal/vector/fault/fault_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal::vector {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

FaultRecord fault_of(int first_env, int num_envs, FaultKind kind = FaultKind::kKilled) {
  FaultRecord record;
  record.kind = kind;
  record.first_env = first_env;
  record.num_envs = num_envs;
  record.message = "rows from " + std::to_string(first_env);
  return record;
}

FaultPolicy restarting(int max_restarts = 100) {
  return {.on_fault = OnFault::kRestart,
          .max_restarts = max_restarts,
          .backoff = 1s,
          .max_backoff = 3s};
}

std::string what(FaultLedger& ledger, const FaultRecord& record) {
  try {
    ledger.admit(record);
  } catch (const TooManyFaults& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(FaultLedger, TheFirstRestartIsAtOnceAndEachFurtherOneWaitsTwiceAsLongUpToTheMost) {
  FaultLedger ledger(restarting(), 4);
  for (const auto& [low, high] : {std::pair{0s, 0s}, {0s, 1s}, {1s, 2s}, {2s, 3s}, {2s, 3s}}) {
    ledger.admit(fault_of(1, 2));
    const auto wait = os::time_left(ledger.due(1));
    EXPECT_LE(wait, high);
    EXPECT_GE(wait, low);
    EXPECT_EQ(ledger.state(2), RowFault::kDown);
    EXPECT_TRUE(ledger.live(0) && ledger.live(3));
    ledger.back(1);
    ledger.back(2);
  }
  EXPECT_EQ(ledger.restarts(1), 5);
  EXPECT_EQ(ledger.restarts(0), 0);
  EXPECT_FALSE(ledger.impaired());
  ledger.admit(fault_of(3, 1));  // another place
  EXPECT_EQ(os::time_left(ledger.due(3)), 0ns);
}

TEST(FaultLedger, ANewEnvironmentStandsUntilItsRowIsBackOrLostAgain) {
  FaultLedger ledger(restarting(), 2);
  ledger.stand(0);
  EXPECT_FALSE(ledger.stands(0));  // a live row has the environment that it has
  ledger.admit(fault_of(0, 1));
  ledger.stand(0);
  EXPECT_TRUE(ledger.stands(0) && !ledger.live(0));
  ledger.admit(fault_of(0, 1));
  EXPECT_FALSE(ledger.stands(0));
  ledger.stand(0);
  ledger.back(0);
  EXPECT_TRUE(ledger.live(0) && !ledger.stands(0));
  EXPECT_EQ(ledger.restarts(0), 1);
  ledger.mark_drained(1);
  ledger.stand(1);
  EXPECT_TRUE(ledger.stands(1) && ledger.drained(1));
  ledger.back(1);
  EXPECT_EQ(ledger.restarts(1), 0);
}

TEST(FaultLedger, NumbersAndCountsFaults) {
  FaultLedger ledger(restarting(), 2);
  EXPECT_EQ(ledger.admit(fault_of(0, 1, FaultKind::kHang))->number, 1U);
  ledger.back(0);
  const Fault second = ledger.admit(fault_of(0, 2));
  EXPECT_EQ(second->number, 2U);
  EXPECT_EQ(second->restarts, 1);
  EXPECT_EQ(ledger.count(FaultKind::kHang), 1U);
  EXPECT_EQ(ledger.count(FaultKind::kKilled), 1U);
}

TEST(FaultLedger, BeyondTheLimitTellsOfAllWithinTheWindow) {
  FaultLedger ledger(restarting(1), 3);
  ledger.admit(fault_of(0, 1));
  EXPECT_THAT(what(ledger, fault_of(2, 1)),
              AllOf(HasSubstr("fault number 2 within 60 s"), HasSubstr("rows from 0"),
                    HasSubstr("rows from 2")));
  FaultPolicy forgetful = restarting(1);
  forgetful.restart_window = 0ms;
  FaultLedger other(forgetful, 3);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(what(other, fault_of(0, 1)), "nothing was thrown");
}

TEST(FaultLedger, WhatOneZygoteTookAlongIsOneFault) {
  FaultLedger ledger(restarting(1), 4);
  FaultRecord record = fault_of(0, 1);
  record.cause = std::make_shared<const process::ZygoteEnd>();
  EXPECT_EQ(ledger.admit(record)->number, 1U);
  record.first_env = 2;
  record.message = "rows from 2";
  EXPECT_EQ(ledger.admit(record)->number, 1U);
  EXPECT_EQ(ledger.count(FaultKind::kKilled), 1U);
  EXPECT_EQ(ledger.state(0), RowFault::kDown);
  EXPECT_EQ(ledger.state(2), RowFault::kDown);
  record.first_env = 3;
  record.message = "rows from 3";
  record.cause = std::make_shared<const process::ZygoteEnd>();
  EXPECT_THAT(
      what(ledger, record),
      AllOf(HasSubstr("fault number 2 within 60 s"), HasSubstr("fault 1 (killed): rows from 2"),
            HasSubstr("fault 2 (killed): rows from 3"), Not(HasSubstr("rows from 0"))));
}

TEST(FaultLedger, DroppedRowsStayDroppedAndTheLastOneIsAnError) {
  FaultLedger ledger({.on_fault = OnFault::kDrop, .max_restarts = 0}, 3);
  ledger.admit(fault_of(0, 1));
  ledger.back(0);
  EXPECT_EQ(ledger.state(0), RowFault::kDropped);
  ledger.admit(fault_of(0, 2));
  EXPECT_TRUE(ledger.live(2));
  EXPECT_THAT(what(ledger, fault_of(2, 1)),
              AllOf(HasSubstr("every environment has been dropped"), HasSubstr("rows from 0"),
                    Not(HasSubstr("forgiven"))));
}

TEST(FaultLedger, RestIsNoRestart) {
  FaultLedger ledger(restarting(), 2);
  ledger.mark_drained(0);
  ledger.mark_drained(1);
  EXPECT_TRUE(ledger.impaired() && ledger.drained(0));
  ledger.resume(0);
  ledger.back(1);
  EXPECT_FALSE(ledger.impaired() || ledger.drained(1));
  EXPECT_EQ(ledger.restarts(0) + ledger.restarts(1), 0);
  ledger.mark_drained(0);
  ledger.admit(fault_of(0, 1));  // it died when it was drained
  EXPECT_FALSE(ledger.drained(0));
  ledger.back(0);
  EXPECT_EQ(ledger.restarts(0), 1);
}

}  // namespace
}  // namespace shoal::vector
