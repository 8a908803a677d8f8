import { describeUrgent } from "../suites/urgent-suite.ts";

describeUrgent("the state in a folder", 20_000);
